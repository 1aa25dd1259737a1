"""Compiles problems by configurations for any architecture, through the pool, each on its own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from gemm_tuner.compile import compile_tasks
from gemm_tuner.compile.compile_pool import CompilePool
from gemm_tuner.core.records import CompileResult, Device
from gemm_tuner.gemm.config import KernelConfig
from gemm_tuner.gemm.problem import GemmProblem
from gemm_tuner.languages.triton.language import LANGUAGE
from gemm_tuner.space import prune, space

ROOT = Path(__file__).resolve().parents[2]
RULES = prune.load_rules(ROOT / "rules", heuristics=False)
ARCHS = tuple(space.known_archs(ROOT / "rules"))
WORKERS = 1  # the tests themselves run side by side
LIMIT_S = 1000.0

Work = list[tuple[GemmProblem, KernelConfig]]


def space_of(arch: str) -> space.SpaceFile:
    return space.load(space.space_path(ROOT / "rules", arch), arch)


def config_for(
    device: Device, *tile: int, family: str = "gemm_tile", split_k: int = 1, warps: int = 4, stages: int = 2,
    group: int = 8, **more: int,
) -> KernelConfig:  # fmt: skip
    amd = {"matrix_instr_nonkdim": 16, "kpack": 1} if device.target.backend == "hip" else {}
    return KernelConfig(family, *tile, group, split_k, warps, stages, **amd, **more)


def compile_work(
    device: Device, work: Work, folder: Path, *, templates: Path = ROOT / "templates", cache: Path | None = None
) -> list[CompileResult]:
    """The results in the order of the work, each compiled on its own, even where sizes share a binary."""
    folder.mkdir(parents=True, exist_ok=True)
    scripts = compile_tasks.write_scripts(templates, folder, work, device.target)
    tasks = [compile_tasks.task_for(scripts, p, c, device.target) for p, c in work]
    with CompilePool(
        LANGUAGE, device.target, WORKERS, cache or folder / "cache", folder / "log.txt", folder, LIMIT_S, kind="gemm"
    ) as pool:
        answers = {id(task): result for task, result in pool.run(tasks)}
    return [answers[id(task)] for task in tasks]


def keeps(name: str, config: KernelConfig, problem: GemmProblem, device: Device) -> bool:
    """What one validity rule says of one configuration."""
    (rule,) = [rule for rule in RULES if rule.name == name]
    columns = prune.columns_of(pd.DataFrame([config.to_dict()]))
    return bool(np.all(rule.keep(columns, problem, device)))


def refusals(config: KernelConfig, problem: GemmProblem, device: Device) -> list[str]:
    """The validity rules that drop a configuration of this problem."""
    backend = device.target.backend
    asked = [r for r in RULES if r.backend in ("", backend) and (not r.families or config.family in r.families)]
    return [rule.name for rule in asked if not keeps(rule.name, config, problem, device)]

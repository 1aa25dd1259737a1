"""Kernels for the GPU at hand: compiled by the pool, loaded, checked; and random problems that each family takes."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd

from gemm_tuner.compile import compile_tasks
from gemm_tuner.compile.compile_pool import CompilePool
from gemm_tuner.core.language import language_of
from gemm_tuner.core.records import Device, Status
from gemm_tuner.gemm.combinations import first_fault
from gemm_tuner.gemm.config import KernelConfig
from gemm_tuner.gemm.problem import ACTIVATIONS, GemmProblem, Layout
from gemm_tuner.space import prune
from gemm_tuner.system.cores import usable_cores

ROOT = Path(__file__).resolve().parents[2]
RULES = prune.load_rules(ROOT / "rules", heuristics=False)
LAYOUTS = tuple(itertools.product(Layout, Layout))
SIDES = (1, 7, 17, 64, 100, 1000, 4095)
# Sides that rows of whole 16 bytes have, of types of one byte, two and four.
WHOLE_SIDES = (16, 64, 112, 1000, 1040, 4096)
FAMILIES = ("gemm_tile", "gemm_persistent", "gemm_split_k", "gemm_stream_k", "gemm_packed", "gemv")
TRIES = 200

Pair = tuple[GemmProblem, KernelConfig]


@dataclass(frozen=True)
class Gpu:
    """The GPU, a folder for kernels, and the counter of what Triton compiles in this process."""

    device: Device
    folder: Path
    counter: Any

    @property
    def cache(self) -> Path:
        """Of compiled kernels: of the pool, and of this process."""
        return self.folder / "cache"

    def config(
        self, m: int, n: int, k: int, *, family: str = "gemm_tile", split_k: int = 1, warps: int = 4, stages: int = 2,
        group: int = 8, **more: int,
    ) -> KernelConfig:  # fmt: skip
        """m, n, k: the tile. more: further fields of the configuration."""
        amd = {"matrix_instr_nonkdim": 16, "kpack": 1} if self.device.target.backend == "hip" else {}
        return KernelConfig(family, m, n, k, group, split_k, warps, stages, **amd, **more)

    def configs(self) -> tuple[KernelConfig, ...]:
        """Several of each family; the rules say which of them a problem can have."""
        return (
            self.config(16, 16, 32, warps=1, group=1),
            self.config(64, 64, 32),
            self.config(64, 32, 64, split_k=4, group=2),
            self.config(32, 64, 32, split_k=2),
            self.config(128, 64, 32, warps=8),
            self.config(64, 64, 64, family="gemm_persistent", PROGRAMS_PER_SM=1, EPILOGUE_SUBTILE=2),
            self.config(128, 64, 32, family="gemm_persistent", EPILOGUE_SUBTILE=4),
            self.config(64, 96, 64, family="gemm_persistent", EPILOGUE_SUBTILE=3),
            self.config(128, 192, 64, family="gemm_persistent", warps=8, PROGRAMS_PER_SM=1, EPILOGUE_SUBTILE=3),
            self.config(128, 128, 64, family="gemm_persistent", stages=3, PROGRAMS_PER_SM=1, WARP_SPECIALIZE=1),
            self.config(64, 64, 64, family="gemm_split_k", split_k=4),
            self.config(32, 64, 64, family="gemm_split_k", split_k=3, EPILOGUE_SUBTILE=2, group=1),
            self.config(64, 64, 64, family="gemm_stream_k", PROGRAMS_PER_SM=1),
            self.config(128, 64, 32, family="gemm_stream_k", PROGRAMS_PER_SM=2, EPILOGUE_SUBTILE=4),
            self.config(64, 64, 64, family="gemm_packed", split_k=3, PACK_BLOCK=1024),
            self.config(64, 128, 64, family="gemm_packed", PROGRAMS_PER_SM=1, EPILOGUE_SUBTILE=2, PACK_BLOCK=4096),
            self.config(64, 64, 64, family="gemm_packed", PROGRAMS_PER_SM=1, PACK_BLOCK=1024),
            self.config(64, 96, 64, family="gemm_packed", EPILOGUE_SUBTILE=3, PACK_BLOCK=2048),
            self.config(1, 64, 64, family="gemv", split_k=2, group=1),
            self.config(4, 32, 64, family="gemv", group=1),
            self.config(16, 32, 32, family="gemv", split_k=4, group=1),
        )

    def takes(self, problem: GemmProblem, config: KernelConfig) -> bool:
        """Whether no validity rule drops the configuration for this problem."""
        columns = prune.columns_of(pd.DataFrame([config.to_dict()]))
        return len(prune.apply(columns, problem, self.device, RULES).kept) == 1

    def has_type(self, rate_key: str) -> bool:
        return rate_key in dict(self.device.matmul_tflops)

    def scripts(
        self, pairs: list[Pair], templates: Path = ROOT / "templates", language: str = "triton"
    ) -> dict[tuple[str, str], ModuleType]:
        """Loaded scripts by family and class, everything in them that the pairs need compiled by the pool."""
        from gemm_tuner.languages.scripts import load_script

        folder = self.folder / f"scripts{sum(1 for _ in self.folder.iterdir())}"
        folder.mkdir()
        target = self.device.target
        scripts = compile_tasks.write_scripts(templates, folder, pairs, target)
        tasks = compile_tasks.tasks_for(pairs, scripts, target)
        workers = usable_cores()
        work = target, workers, self.cache, folder / "compile.log", folder
        with CompilePool(language_of(language), *work, limit_s=120.0) as pool:
            failed = [(t.name, t.specialization, r.message) for t, r in pool.run(tasks) if r.status != Status.OK]
        assert failed == []
        self.counter.compiled = self.counter.from_cache = 0
        return {key: load_script(str(folder / script.file)) for key, script in scripts.items()}

    def script(self, problem: GemmProblem, config: KernelConfig) -> ModuleType:
        return self.scripts([(problem, config)])[config.family, problem.signature]


def wrong_cases(gpu: Gpu, pairs: list[Pair]) -> list[str]:
    """Checks all pairs on the GPU; what is wrong, in words. Asserts that nothing was compiled for it."""
    from gemm_tuner.gemm.check import check

    scripts = gpu.scripts(pairs)
    found = []
    for problem, config in pairs:
        verdict = check(scripts[config.family, problem.signature], problem, config.name, 1, "cuda")
        if not verdict.ok:
            found.append(f"{problem.key} {config.name}: {verdict.message}")
    assert gpu.counter.compiled == 0, "kernels were compiled in the process that runs them"
    assert gpu.counter.from_cache > 0
    return found


def random_pairs(gpu: Gpu, plain: GemmProblem, count: int, scalings: tuple[str, ...], seed: str) -> Iterator[Pair]:
    """Pairs of a type: the configurations in turns, each with random sides, layouts and epilogue that it takes."""
    draw = random.Random(seed)
    for config in itertools.islice(itertools.cycle(gpu.configs()), count):
        for _ in range(TRIES):
            problem = random_problem(draw, plain, config, scalings)
            if first_fault(problem) is None and gpu.takes(problem, config):
                yield problem, config
                break


def random_problem(
    draw: random.Random, plain: GemmProblem, config: KernelConfig, scalings: tuple[str, ...]
) -> GemmProblem:
    m, n, k = (draw.choice(draw.choice((SIDES, WHOLE_SIDES))) for _ in range(3))
    if config.family == "gemv":
        small = draw.randint(1, config.BLOCK_SIZE_M)
        m, n = draw.choice(((small, n), (m, small)))
    layout_a, layout_b = draw.choice(LAYOUTS)
    problem = replace(plain, m=m, n=n, k=k, layout_a=layout_a, layout_b=layout_b, bias=draw.random() < 0.5)
    if plain.dtype_c == "int32":
        return problem
    return replace(
        problem,
        activation=draw.choice(("none", *ACTIVATIONS)),
        alpha=draw.choice((1.0, 0.75)),
        beta=draw.choice((0.0, 0.0, -1.5)),
        scaling=draw.choice(scalings),
        batch=draw.choice((1, 1, 3)) if config.family == "gemm_tile" else 1,
    )

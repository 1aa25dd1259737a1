"""What several unit tests need: the shipped rules, devices and spaces, and records with sensible defaults."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from gemm_tuner.core.records import Device
from gemm_tuner.gemm.config import KernelConfig
from gemm_tuner.gemm.problem import GemmProblem
from gemm_tuner.gemm.problem_keys import Defaults
from gemm_tuner.measure.device import Machine
from gemm_tuner.pipeline.prepare import Space, load_space
from gemm_tuner.pipeline.run_options import RunOptions
from gemm_tuner.space import prune, space
from gemm_tuner.store.sizes import SizeList, load_file, sizes_of

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "rules"
TEMPLATES = ROOT / "templates"
ARCHS = tuple(space.known_archs(RULES))
# Of those with the same axes one: ``make test`` takes it for the others where the time is that of a whole space.
SAMPLED_ARCHS = ("sm_80", "sm_90", "sm_100", "gfx942", "gfx1100")


def archs(*sampled: str) -> list[Any]:
    """All architectures as parameters of a test, those that are not sampled for ``make test-all`` alone."""
    taken = sampled or SAMPLED_ARCHS
    return [pytest.param(arch, marks=() if arch in taken else pytest.mark.grid) for arch in ARCHS]


NO_GPU = Machine((), {"torch": "2.11.0", "triton": "3.6.0", "python": "3.11.0"}, "")
AMD = {"matrix_instr_nonkdim": 16, "kpack": 2, "num_stages": 2}


def config(**changes: int) -> KernelConfig:
    """128 x 128 x 64 tiles for NVIDIA, with changes."""
    fields: dict[str, Any] = {
        "family": "gemm_tile",
        "BLOCK_SIZE_M": 128,
        "BLOCK_SIZE_N": 128,
        "BLOCK_SIZE_K": 64,
        "GROUP_SIZE_M": 1,
        "SPLIT_K": 1,
        "num_warps": 4,
        "num_stages": 3,
    }
    return KernelConfig(**{**fields, **changes})


def problem(m: int, n: int, k: int, dtype: str = "bf16") -> GemmProblem:
    return GemmProblem(m, n, k, dtype, dtype, dtype)


@cache
def device(arch: str) -> Device:
    return space.load(RULES / f"space_{arch}.yaml", arch).device


@cache
def shipped(arch: str, *, heuristics: bool = True, families: tuple[str, ...] = ()) -> Space:
    """The space of an architecture with the shipped rules. families: all that are installed by default."""
    asked = RunOptions((), TEMPLATES, RULES, ROOT, heuristics=heuristics, families=families)
    return load_space(asked, device(arch))


# Of every shipped space.
FAMILIES = frozenset(("gemm_tile", "gemm_persistent", "gemm_split_k", "gemm_stream_k", "gemm_packed", "gemv"))


def columns(*configs: KernelConfig, largest: dict[str, int] | None = None, arch: str = "") -> Any:
    """The columns of some configurations, as a rule sees them among a whole space with these largest values, and with
    the values that families have in the shipped space of ``arch``."""
    made = prune.columns_of(pd.DataFrame([one.to_dict() for one in configs]))
    made.largest = {**made.largest, **(largest or {})}
    made.families = FAMILIES
    if arch:
        made.values_of = prune.values_in(space.load(RULES / f"space_{arch}.yaml", arch).families)
    return made


def gpu(index: int, name: str = "NVIDIA H200", arch: str = "sm_90") -> dict[str, Any]:
    """What the probe says of one GPU."""
    limits = {"num_sms": 132, "memory_bytes": 150_000_000_000, "l2_bytes": 62914560, "shared_memory_bytes": 232448}
    return {"id": index, "name": name, "arch": arch, **limits}


def load_sizes(path: str | Path, defaults: Defaults) -> SizeList:
    """The sizes of a file."""
    return sizes_of(load_file(path), defaults)

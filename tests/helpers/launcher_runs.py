"""Plans for launchers that are stand-ins, and what became of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from samples import ROOT, problem

from gemm_tuner.gemm.problem import GemmProblem
from gemm_tuner.launch.plan import SCREEN, Method, Plan, Work
from gemm_tuner.measure.retry import StageRun

ONE, TWO = problem(512, 512, 512), problem(64, 64, 64)
HELPERS = ROOT / "tests" / "helpers"
Run = Callable[..., StageRun]


def plan(*work: tuple[GemmProblem, list[str]], stage: str = SCREEN, vendor: bool = False, **fields: Any) -> Plan:
    works = tuple(Work(size, tuple((0, name) for name in names), vendor) for size, names in work)
    return Plan(stage, (str(HELPERS / "launcher_stand_in.py"),), works, Method(timed_calls=2), **fields)


def statuses(run: StageRun, size: GemmProblem = ONE) -> dict[str, str]:
    return {name: timing.status.value for (one, name), timing in run.timings.items() if one == size}


def entries_of(folder: Path) -> list[list[str]]:
    plans = [Plan.read(path) for path in sorted(folder.glob("start*/plan.json"))]
    return [[name for work in one.work for _, name in work.entries] for one in plans]

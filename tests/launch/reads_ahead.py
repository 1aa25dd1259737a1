"""As a script: ``reads_ahead.py SCRIPT CONFIG OTHER PROBLEM STAGE``: compiles the kernel of CONFIG for the problem and
loads the script anew. Prints what is read for a plan of both configurations, and what a launch of each then gets."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import triton
from samples import device

from gemm_tuner.gemm.problem import GemmProblem
from gemm_tuner.languages.scripts import load_script
from gemm_tuner.languages.triton.compile_call import StandInDriver
from gemm_tuner.launch.plan import Method, Plan, Work
from gemm_tuner.launch.reading_ahead import read, read_ahead


@contextmanager
def heard() -> Iterator[list[str]]:
    """Where each kernel came from meanwhile, other than the memory of this process."""
    events: list[str] = []

    def note(*, cache_hit: bool, **_: Any) -> None:
        events.append("cache" if cache_hit else "compiler")

    with triton.knobs.compilation.scope():
        triton.knobs.compilation.listener = note
        yield events


def main(path: str, name: str, other: str, text: str, stage: str) -> dict[str, Any]:
    problem = GemmProblem(*json.loads(text))
    triton.runtime.driver.set_active(StandInDriver(device("sm_90").target))
    read(load_script(path), name, problem)
    script = load_script(path)
    found: dict[str, Any] = {}
    plan = Plan(stage, (path,), (Work(problem, ((0, name), (0, other))),), Method(), device="cuda")
    with heard() as found["none"]:
        read_ahead(plan, [script], stop=lambda: True)
    with heard() as found["ahead"]:
        read_ahead(plan, [script])
    for one in (name, other):
        with heard() as found[one]:
            read(script, one, problem)
    return found


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))

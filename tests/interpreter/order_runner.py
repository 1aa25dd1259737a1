"""Calls kernels in Triton's interpreter many times with one scratch, their programs in another order each time.

The interpreter runs the programs of a grid one after another, so that without this the last of them would always
be the last to finish a tile. As a script: ``order_runner.py CALLS.json RESULTS.json``.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import subprocess
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from case_runner import all_guarded

from gemm_tuner.kernel_env import launcher_env
from gemm_tuner.records import GemmProblem, KernelConfig


@dataclass(frozen=True)
class Calls:
    """A kernel and how often it is called."""

    script: str
    config: KernelConfig
    problem: GemmProblem
    count: int = 10

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "problem": self.problem.to_dict()}


@dataclass(frozen=True)
class Outcome:
    """Digests of C, one a call; message: what is wrong with the last C; last_programs: which program ran last."""

    digests: tuple[str, ...]
    message: str
    last_programs: tuple[int, ...]


def call_often(calls: list[Calls], folder: Path) -> list[Outcome]:
    """All of them in one process."""
    given, found = folder / "calls.json", folder / "outcomes.json"
    given.write_text(json.dumps([one.to_dict() for one in calls]), encoding="utf-8")
    env = launcher_env(folder / "cache", {"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"})
    command = [sys.executable, os.fspath(Path(__file__).resolve()), str(given), str(found)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"exit status {done.returncode}: {(done.stdout + done.stderr)[-3000:]}"
    rows = json.loads(found.read_text(encoding="utf-8"))
    return [Outcome(tuple(r["digests"]), r["message"], tuple(r["last_programs"])) for r in rows]


def outcome_of(row: dict[str, Any], order: Order) -> Outcome:
    """Inside the interpreting process."""
    from gemm_tuner.launcher.check import compare
    from gemm_tuner.launcher.kernels import launch_all, load_script
    from gemm_tuner.launcher.operands import interpretable, make_operands
    from gemm_tuner.launcher.reference import reference
    from gemm_tuner.launcher.scratch import STAND_IN_SMS, call_size, make_scratch

    problem, name = GemmProblem.from_dict(row["problem"]), KernelConfig(**row["config"]).name
    script = load_script(row["script"])
    config, operands = script.CONFIGS[name], make_operands(problem, "randn", 0, "cpu")
    given = interpretable(operands)
    scratch = all_guarded(make_scratch(script, config, problem, "cpu", STAND_IN_SMS))
    digests, last_programs = [], []
    for turn in range(row["count"]):
        order.seed = turn
        call = all_guarded(replace(given, c=given.c.new_full(given.c.shape, float("nan"))))
        launch_all(script.calls(config, call_size(problem), call, scratch, STAND_IN_SMS))
        assert scratch.locks is None or not scratch.locks.any(), f"{name} left locks behind in call {turn}"
        digests.append(hashlib.sha256(call.c.numpy().tobytes()).hexdigest())
        last_programs.append(order.last)
    actual = call.c.to(operands.c.dtype).reshape(-1, problem.n)
    verdict = compare(actual, *reference(problem, operands), problem, name)
    return Outcome(tuple(digests), verdict.message, tuple(last_programs))


class Order:
    """Shuffles the programs of every grid: what the interpreter would run first runs in another place.

    Seed 0 leaves them in order, seed 1 turns it round.
    """

    def __init__(self) -> None:
        from triton.runtime.interpreter import interpreter_builder

        self.seed, self.last = 0, 0
        self._set_grid_idx = interpreter_builder.set_grid_idx
        self._builder = interpreter_builder
        interpreter_builder.set_grid_idx = self

    def __call__(self, x: int, y: int, z: int) -> None:
        extents = self._builder.grid_dim
        count = extents[0] * extents[1] * extents[2]
        programs = list(range(count))
        if self.seed == 1:
            programs.reverse()
        elif self.seed > 1:
            random.Random(f"{self.seed} {count}").shuffle(programs)
        self.last = programs[(x * extents[1] + y) * extents[2] + z]
        rest, other_z = divmod(self.last, extents[2])
        self._set_grid_idx(*divmod(rest, extents[1]), other_z)


def main(given: str, found: str) -> None:
    import warnings

    warnings.simplefilter("ignore")
    order = Order()
    outcomes = [asdict(outcome_of(row, order)) for row in json.loads(Path(given).read_text(encoding="utf-8"))]
    Path(found).write_text(json.dumps(outcomes), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])

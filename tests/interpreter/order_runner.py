"""Calls kernels in Triton's interpreter many times with one scratch, their programs in another order each time.

The interpreter runs the programs of a grid one after another, so that without this the last of them would always
be the last to finish a tile.
"""

from __future__ import annotations

import hashlib
import random
from dataclasses import asdict, dataclass, replace
from typing import Any

from case_runner import all_guarded
from interpreter_child import interpreter

from gemm_tuner.gemm.config import KernelConfig
from gemm_tuner.gemm.problem import GemmProblem


@dataclass(frozen=True)
class Calls:
    """A kernel and how often it is called."""

    script: str
    config: KernelConfig
    problem: GemmProblem
    count: int = 4

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "problem": self.problem.to_dict()}


@dataclass(frozen=True)
class Outcome:
    """Digests of C, one a call; message: what is wrong with the last C; last_programs: which program ran last."""

    digests: tuple[str, ...]
    message: str
    last_programs: tuple[int, ...]


def call_often(calls: list[Calls]) -> list[Outcome]:
    """Raises AssertionError for what raises there."""
    rows = [interpreter().ask(outcome_of, row=one.to_dict()) for one in calls]
    return [Outcome(tuple(r["digests"]), r["message"], tuple(r["last_programs"])) for r in rows]


def outcome_of(row: dict[str, Any]) -> dict[str, Any]:
    """Inside the interpreting process: an outcome as JSON has it."""
    with Order() as order:
        return asdict(called_in_orders(row, order))


def called_in_orders(row: dict[str, Any], order: Order) -> Outcome:
    from gemm_tuner.core.workload import launch_all
    from gemm_tuner.gemm.compare import compare
    from gemm_tuner.gemm.kernels import call_size, make_scratch
    from gemm_tuner.gemm.operands import interpretable, make_operands
    from gemm_tuner.gemm.reference import reference
    from gemm_tuner.languages.scratch import STAND_IN_SMS
    from gemm_tuner.languages.scripts import load_script

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

    def __enter__(self) -> Order:
        self._builder.set_grid_idx = self
        return self

    def __exit__(self, *_: object) -> None:
        self._builder.set_grid_idx = self._set_grid_idx

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

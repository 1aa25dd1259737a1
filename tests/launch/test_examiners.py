"""Checks of a plan: what the finalists of a size share is made once for all, and let go when the size is through.
Imports torch, on the CPU."""

from __future__ import annotations

import gc
import io
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from samples import config, problem

from gemm_tuner.core.records import Problem, Verdict
from gemm_tuner.core.workload import workload_of
from gemm_tuner.gemm import cases
from gemm_tuner.gemm.cases import Cases
from gemm_tuner.gemm.check import check
from gemm_tuner.gemm.companions import odd_companion
from gemm_tuner.gemm.operands import Operands
from gemm_tuner.languages.seal import Seal
from gemm_tuner.launch.examiners import MOST_EXAMINERS, Examiners
from gemm_tuner.launch.journal import Fail, Journal, Judged, event_of
from gemm_tuner.launch.plan import VERIFY, Method, Plan, Work
from gemm_tuner.launch.verify import verify

ONE, TWO = problem(40, 48, 64, "fp32"), problem(64, 32, 96, "fp32")
SMALL = config(BLOCK_SIZE_M=16, BLOCK_SIZE_N=16, BLOCK_SIZE_K=16)
# Four finalists with two different companions.
FINALISTS = (SMALL, replace(SMALL, num_stages=4), replace(SMALL, BLOCK_SIZE_M=32), replace(SMALL, num_warps=8))


class Script(ModuleType):
    """A generated script whose kernels compute C; those in ``errors`` raise once they ran."""

    DESCRIPTORS = False

    def __init__(self, errors: dict[str, list[Exception]] | None = None) -> None:
        super().__init__("script")
        self.CONFIGS = {one.name: {**one.to_dict(), "name": one.name} for one in FINALISTS}
        self.errors = errors or {}

    def scratch(self, config: Any, size: Any, num_sms: int) -> tuple[int, int]:
        return 0, 0

    def calls(self, config: Any, size: Any, operands: Operands, scratch: Any, num_sms: int) -> list[Any]:
        def launch() -> None:
            operands.c.copy_(operands.a.double() @ operands.b.double())
            if left := self.errors.get(config["name"]):
                operands.a.fill_(1.0)
                raise left.pop()

        return [("kernel", {(1,): launch}, (1,), (), {})]


class Made:
    """The references that were made, by problem, and the ``Cases`` that are there."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.references: Counter[Problem] = Counter()
        original = cases.reference

        def counted(of: Any, *given: Any) -> Any:
            self.references[of] += 1
            return original(of, *given)

        monkeypatch.setattr(cases, "reference", counted)

    def there(self) -> list[Problem]:
        gc.collect()
        return [one.problem for one in gc.get_objects() if type(one) is Cases]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Made:
    return Made(monkeypatch)


def verified(
    tmp_path: Path, script: Script, *sizes: Problem, between: Any = lambda: None, stops: bool = False, count: int = 4
) -> list[Any]:
    """The verdicts and failures of so many finalists at these sizes, in order. stops: at the first that is right."""
    stream = io.StringIO()
    works = tuple(Work(size, tuple((0, one.name) for one in FINALISTS[:count])) for size in sizes)
    plan = Plan(VERIFY, ("s.py",), works, Method(), device="cpu", stop_at_first_right=stops)
    verify(plan, Journal(stream), [script], tmp_path / "stop", interpreted=False, between=between)
    events = [event_of(line, "journal") for line in stream.getvalue().splitlines()]
    return [one for one in events if isinstance(one, (Judged, Fail))]


def test_finalists_of_a_size_share_a_reference_and_those_of_one_companion(made: Made, tmp_path: Path) -> None:
    script, held = Script(), list[list[Problem]]()
    found = verified(tmp_path, script, ONE, TWO, between=lambda: held.append(made.there()))
    companions = {odd_companion(size, one.to_dict(), False) for size in (ONE, TWO) for one in FINALISTS}
    assert made.references == {ONE: 1, TWO: 1, **dict.fromkeys(companions, 2)} and len(companions) == 2
    assert held == [[], []], "nothing outlives its work"
    pairs = [(size, one) for size in (ONE, TWO) for one in FINALISTS]
    each = [
        Judged.of(index // len(FINALISTS), check(script, given, one.name, 0, "cpu"))
        for index, (size, one) in enumerate(pairs)
        for given in (size, odd_companion(size, one.to_dict(), False))
    ]
    assert found == each and all(one.ok for one in found)


def test_a_finalist_that_fails_leaves_nothing_for_the_next_one(made: Made, tmp_path: Path) -> None:
    """It had written to A."""
    failing = FINALISTS[1].name
    found = verified(tmp_path, Script({failing: [RuntimeError("no such grid")]}), ONE)
    assert [(one.name, isinstance(one, Fail)) for one in found] == [
        (FINALISTS[0].name, False), (FINALISTS[0].name, False), (failing, True),
        *((one.name, False) for one in FINALISTS[2:] for _ in range(2)),
    ]  # fmt: skip
    assert all(one.ok for one in found if isinstance(one, Judged))
    shared, other = (odd_companion(ONE, one.to_dict(), False) for one in FINALISTS[1:3])
    assert made.references == {ONE: 2, shared: 2, other: 1}


@pytest.mark.parametrize(("which", "count"), [(0, 4), (1, 4), (0, 1)])
@pytest.mark.parametrize("times", [1, 2])
def test_a_finalist_without_memory_is_checked_once_more_by_itself(
    made: Made, tmp_path: Path, which: int, count: int, times: int
) -> None:
    """Another launcher may have had it."""
    failing = FINALISTS[which].name
    errors: list[Exception] = [MemoryError(f"CUDA out of memory: {turn}") for turn in range(times)]
    found = verified(tmp_path, Script({failing: errors}), ONE, count=count)
    assert [one.name for one in found if isinstance(one, Fail)] == [failing] * (times - 1)
    right = [one.name for one in found if isinstance(one, Judged) and one.ok]
    assert right == [one.name for one in FINALISTS[:count] for _ in range(2) if one.name != failing or times == 1]


@pytest.mark.parametrize(("stops", "count", "sets"), [(False, 1, 0), (True, 4, 0), (False, 4, 3)])
def test_nothing_is_sealed_for_a_finalist_that_is_checked_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, stops: bool, count: int, sets: int
) -> None:
    """sets: problems of which anything is kept, each with two sets of operands and what C must be on them."""
    seals: list[Seal] = []

    class Counted(Seal):
        def __init__(self, tensors: Any) -> None:
            super().__init__(tensors)
            seals.append(self)

    monkeypatch.setattr(cases, "Seal", Counted)
    found = verified(tmp_path, Script(), ONE, stops=stops, count=count)
    assert len(found) == 2 * (1 if stops else count) and all(one.ok for one in found)
    assert len(seals) == 4 * sets


def test_at_most_so_many_problems_are_held_and_the_tuned_size_among_them(made: Made) -> None:
    script = Script()
    examiners, name = Examiners(workload_of("gemm"), 0, "cpu", several=True), SMALL.name
    companions = [problem(17 + extra, 16, 16) for extra in range(2 * MOST_EXAMINERS)]
    verdicts: list[Verdict] = []
    for companion in companions:
        verdicts += [examiners.verdict(one, script, name) for one in (ONE, companion)]
        assert len(made.there()) <= MOST_EXAMINERS
    assert all(one.ok for one in verdicts)
    assert made.references[ONE] == 1 and made.there() != []

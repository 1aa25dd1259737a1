"""Checks a configuration: its result against a reference of higher precision, and repeated calls for equal bits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import ModuleType
from typing import Any

from gemm_tuner.core.judges import SharingExaminer
from gemm_tuner.core.records import Verdict
from gemm_tuner.core.workload import Launch, launch_all
from gemm_tuner.gemm.cases import KEPT_BYTES, Case, Cases, kept_bytes
from gemm_tuner.gemm.compare import Expected, blocks, compared, first_row, worse
from gemm_tuner.gemm.exact_operands import Wrong, count_sets, exact_fault
from gemm_tuner.gemm.kernels import call_size, make_scratch
from gemm_tuner.gemm.operands import Operands, interpretable, unwrite
from gemm_tuner.gemm.problem import GemmProblem
from gemm_tuner.gemm.reference import batched
from gemm_tuner.languages.bits import Comparisons
from gemm_tuner.languages.scratch import Scratch, count_sms

# Number of calls on a GPU that must give equal bits, to detect races. The interpreter is sequential and needs one.
REPEATS = 5
WRITES_OUTSIDE = "the kernel writes outside of C: operands or the reference were others after its calls"
# Sides of what ``prepare`` computes.
SMALL = 256


def check(script: ModuleType, problem: GemmProblem, name: str, seed: int, device: str) -> Verdict:
    """Runs one configuration on two kinds of operands and checks C, which ``unwritten`` fills beforehand.

    1. N(0, 1) operands: C must be within the error bound of the reference. On a GPU the same call runs REPEATS times
       with the same scratch and must give equal bits; otherwise the verdict is unstable.
    2. Every set of ``exact_operands``: C must be equal. This finds single missing terms at large K, which hide within
       the error bound of random operands.

    The errors in the verdict are those of the N(0, 1) operands.

    Rows are counted across the batch: row r of matrix i is i * m + r. C is compared in blocks of about COMPARE_ELEMENTS
    elements.
    """
    return examined(script, name, Cases(problem, seed, device, kept=False))


def examiner(problem: GemmProblem, seed: int, device: str) -> SharingExaminer[Cases]:
    """Gives the verdicts of ``check``, but a kernel that writes to its operands is wrong. Operands and what C must be
    on them are made once, where they take at most KEPT_BYTES."""
    kept = kept_bytes(problem) <= KEPT_BYTES
    return SharingExaminer(partial(Cases, problem, seed, device, kept=kept), examined, WRITES_OUTSIDE)


def prepare(problem: GemmProblem, device: str) -> None:
    """Computes what C must be at a small size, and compares it with itself: torch's and the vendor library's kernels of
    a check are loaded by their first calls."""
    sides = {name: min(getattr(problem, name), SMALL) for name in ("m", "n", "k", "batch")}
    cases = Cases(replace(problem, **sides), 0, device, kept=False)
    for _, _, expected in cases.random().expected():
        compared(expected.rounded, expected, cases.problem, "")
    exact = cases.exact(0)
    for matrices, rows, limits in exact.expected():
        exact_fault(limits[0], exact.problem, exact.unwritten(), rows, matrices, limits)
    calls = Comparisons(limits[0])
    calls.add(limits[0])
    calls.first()


def examined(script: ModuleType, name: str, cases: Cases) -> Verdict:
    """The verdict of ``check``."""
    caller = Caller.of(script, cases.problem, name, cases.device)
    verdict = check_random(caller, cases.random(), name)
    for number in range(count_sets(cases.problem)):
        if not verdict.ok:
            break
        verdict = check_exact(caller, cases.exact(number), verdict, number)
    return verdict


@dataclass(frozen=True, slots=True)
class Caller:
    """Creates the launches of one configuration; all use the same scratch memory."""

    script: ModuleType
    config: dict[str, Any]
    scratch: Scratch
    num_sms: int
    device: str

    @classmethod
    def of(cls, script: ModuleType, problem: GemmProblem, name: str, device: str) -> Caller:
        config, num_sms = script.CONFIGS[name], count_sms(device)
        return cls(script, config, make_scratch(script, config, problem, device, num_sms), num_sms, device)

    def launches(self, problem: GemmProblem, operands: Operands) -> tuple[list[Launch], Any]:
        """(the launches of one call, the C that they write). In the interpreter these use copies of wider types."""
        given = interpretable(operands) if self.device == "cpu" else operands
        return self.script.calls(self.config, call_size(problem), given, self.scratch, self.num_sms), given.c

    def result(self, problem: GemmProblem, operands: Operands) -> Any:
        """C of one call, shape (matrices, m, n)."""
        launches, c = self.launches(problem, operands)
        launch_all(launches)
        return batched(c.to(operands.c.dtype))


def check_random(caller: Caller, case: Case[Expected], name: str) -> Verdict:
    """The check with N(0, 1) operands."""
    problem, operands = case.problem, case.unwritten()
    launches, c = caller.launches(problem, operands)
    launch_all(launches)
    actual = batched(c.to(operands.c.dtype, copy=True))
    worst: Verdict | None = None
    for matrices, rows, expected in case.expected():
        of_block = actual[matrices, rows].reshape(-1, problem.n)
        part = compared(of_block, expected, problem, name, first_row=first_row(problem, matrices, rows))
        worst = part if worst is None else worse(worst, part)
        del expected  # before that of the next block is made
    assert worst is not None
    return repeated(launches, c, actual, problem, worst) if caller.device != "cpu" else worst


def check_exact(caller: Caller, case: Case[tuple[Any, Any]], verdict: Verdict, number: int) -> Verdict:
    """The check with set ``number`` of the exact operands: returns ``verdict`` (that of the random operands) if C is
    exact, else a failed verdict with the wrong element."""
    problem, operands = case.problem, case.unwritten()
    actual = caller.result(problem, operands)
    found = exact_difference(actual, problem, operands, case.expected())
    if found is None:
        return verdict
    (row, column), what = found
    which = f"exact operands, set {number + 1} of {count_sets(problem)}"
    return replace(verdict, ok=False, worst_element=(row, column), message=f"C[{row}, {column}] {what} ({which})")


def exact_difference(
    actual: Any,
    problem: GemmProblem,
    operands: Operands,
    expected: Iterable[tuple[slice, slice, tuple[Any, Any] | None]] | None = None,
) -> Wrong | None:
    """``exact_fault`` for all of C, shape (matrices, m, n); rows are counted across the batch. expected: the limits of
    each block, if they are known."""
    for matrices, rows, limits in expected or ((*block, None) for block in blocks(problem)):
        part = actual[matrices, rows].reshape(-1, problem.n)
        found = exact_fault(part, problem, operands, rows, matrices, limits)
        if found is not None:
            (row, column), what = found
            return (first_row(problem, matrices, rows) + row, column), what
        del part, limits  # before those of the next block are made
    return None


def repeated(launches: Sequence[Launch], c: Any, first: Any, problem: GemmProblem, verdict: Verdict) -> Verdict:
    """``verdict`` if REPEATS calls all give the bits of ``first``, shape (matrices, m, n); else an unstable verdict
    with the first element that differs. The host waits for the GPU once, after the last call."""
    calls = Comparisons(first)
    for _ in range(2, REPEATS + 1):
        unwrite(c, problem.dtype_c)
        launch_all(launches)
        calls.add(batched(c))
    found = calls.first()
    if found is None:
        return verdict
    matrix, row, column = found.index
    at = (matrix * problem.m + row, column)
    values = f"{float(first[found.index]):.9g} and in call {found.which + 2} {found.value:.9g}"
    return replace(verdict, ok=False, stable=False, worst_element=at, message=f"C[{at[0]}, {at[1]}] is {values}")

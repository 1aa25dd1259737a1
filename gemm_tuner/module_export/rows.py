"""Which rows of a results file a module's ``matmul(a, b, bias)`` can serve, and why not the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

from gemm_tuner.records import GemmProblem, KernelConfig, Verified
from gemm_tuner.sizes import Row


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A size of the results file that the module does not hold, and why."""

    problem: GemmProblem
    reason: str


@dataclass(frozen=True, slots=True)
class Tuned:
    """A size that the module holds. ``time_us`` is measured, or predicted where nothing was; None when unknown."""

    problem: GemmProblem
    config: KernelConfig
    time_us: float | None

    @property
    def product(self) -> GemmProblem:
        """The class of the plain product: types and layouts, without a bias."""
        return replace(self.problem.as_class(), bias=False)


def select(
    rows: Iterable[Row], failures: Iterable[tuple[GemmProblem, str]] = ()
) -> tuple[tuple[Tuned, ...], tuple[LeftOut, ...]]:
    """The rows that matmul can serve, each size once, and all others.

    failures: the sizes that the results file has no config for, which are left out too.
    """
    tuned: dict[GemmProblem, Tuned] = {}
    left_out = [LeftOut(problem, f"it was not tuned: {reason}") for problem, reason in failures]
    rows = tuple(rows)
    outputs = _outputs(row.problem for row in rows if not _reason(row))
    for row in rows:
        problem, output = row.problem, (row.problem.dtype_c, row.problem.precision)
        reason = _reason(row)
        if not reason and output != outputs[problem.dtype_a, problem.dtype_b]:
            chosen = " with precision ".join(outputs[problem.dtype_a, problem.dtype_b])
            reason = f"of A and B of these types matmul makes {chosen}"
        if not reason and problem in tuned:
            reason = "the results file has it twice"
        if reason:
            left_out.append(LeftOut(problem, reason))
        elif row.config is not None:
            tuned[problem] = Tuned(problem, row.config, row.facts.get("median_us", row.facts.get("predicted_us")))
    return tuple(tuned.values()), tuple(left_out)


def _reason(row: Row) -> str:
    """Why matmul(a, b, bias) cannot be this row; empty when it can."""
    problem = row.problem
    if row.verified is Verified.FALSE:
        return "its kernel was not verified"
    has = {
        "batch": problem.batch > 1,
        "scales": problem.scaling != "none",
        "activation": problem.activation != "none",
        "alpha": problem.has_alpha,
        "beta": problem.reads_c,
    }
    extra = [name for name, there in has.items() if there]
    return f"matmul has no {' and no '.join(extra)}" if extra else ""


def _outputs(problems: Iterable[GemmProblem]) -> dict[tuple[str, str], tuple[str, str]]:
    """(dtype_c, precision) for each (dtype_a, dtype_b), since matmul is not told: that of A if there is one and exact
    products if there are any, else what most sizes have."""
    counts: dict[tuple[str, str], Counter[tuple[str, str]]] = {}
    for problem in problems:
        counts.setdefault((problem.dtype_a, problem.dtype_b), Counter())[problem.dtype_c, problem.precision] += 1
    return {types: _preferred(found, types[0]) for types, found in counts.items()}


def _preferred(counts: Counter[tuple[str, str]], dtype_a: str) -> tuple[str, str]:
    return max(counts, key=lambda output: (output[0] == dtype_a, output[1] == "ieee", counts[output]))

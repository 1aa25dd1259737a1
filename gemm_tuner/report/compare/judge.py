"""Compares two results by size: the ratio of B's time to A's with a confidence interval, and a verdict."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from statistics import geometric_mean

from gemm_tuner.core.records import Problem
from gemm_tuner.decide import estimates
from gemm_tuner.report.compare.sides import Side, Timed

# Header keys that must be equal for times to be comparable, by their names in warnings.
_MATTERS = {
    "device": ("device", "arch", "num_sms", "driver"),
    "versions": ("triton", "torch"),
    "method": ("source", "profiler", "profiler_version", "init_type", "l2"),
}


class ComparedVerdict(str, Enum):
    """The result of comparing one size.

    SAME:        the ratio is within the tolerance, and its interval contains 1 or is unknown.
    UNCLEAR:     the ratio is beyond the tolerance, but its interval contains 1.
    LOST, FOUND: only A has a configuration; only B has one.
    """

    FASTER = "faster"
    SLOWER = "slower"
    SAME = "same"
    UNCLEAR = "unclear"
    LOST = "lost"
    FOUND = "found"
    NOT_COMPARABLE = "not comparable"


@dataclass(frozen=True, slots=True)
class Compared:
    """One size that both results have.

    ratio:      B's median over A's; above 1, B is slower.
    interval:   of the ratio; None if the spread of the times is unknown.
    noise:      source of the interval: ``processes``, ``p20-p80``, or "".
    regression: slower by more than the tolerance, or lost.
    consumer:   the consumer whose configurations are compared; "" for the sizes' winners.
    """

    problem: Problem
    verdict: ComparedVerdict
    a: Timed | None
    b: Timed | None
    ratio: float | None = None
    interval: tuple[float, float] | None = None
    noise: str = ""
    regression: bool = False
    why: str = ""
    consumer: str = ""

    @property
    def config_changed(self) -> bool:
        return self.a is not None and self.b is not None and self.a.config != self.b.config

    @property
    def is_predicted(self) -> bool:
        """Whether the ratio is that of two predictions."""
        return self.ratio is not None and self.a is not None and self.a.source == "predicted"


@dataclass(frozen=True, slots=True)
class Comparison:
    """compared: the sizes in both results, in A's order. warnings: differences of the headers, in words."""

    compared: tuple[Compared, ...]
    only_a: tuple[Problem, ...]
    only_b: tuple[Problem, ...]
    warnings: tuple[str, ...]

    @property
    def regressions(self) -> int:
        return sum(one.regression for one in self.compared)

    @property
    def predicted(self) -> int:
        """Number of ratios of two predictions."""
        return sum(one.is_predicted for one in self.compared)

    @property
    def all_predicted(self) -> bool:
        return 0 < self.predicted == len(self.compared)

    def faults(self, *, allow_missing: bool) -> list[str]:
        """Why B does not pass, in words; empty if it passes.

        allow_missing: sizes of A may be missing or not comparable in B, if at least one size can be compared.
        """
        unclear = {one.problem for one in self.compared if one.a and one.verdict == ComparedVerdict.NOT_COMPARABLE}
        told = [(self.regressions, "regression", "")]
        if not allow_missing:
            told += [(len(self.only_a), "size", " of A missing in B"), (len(unclear), "size", " of A not comparable")]
        found = [f"{count} {what}{'s' if count > 1 else ''}{where}" for count, what, where in told if count]
        if not self.only_a and not self.compared:
            found.append("A holds no size")
        elif not self.compared:
            found.append("no size in common")
        elif all(one.verdict == ComparedVerdict.NOT_COMPARABLE for one in self.compared):
            found.append("nothing could be compared")
        return found

    def geometric_mean(self) -> float | None:
        """Geometric mean of the ratios; None without any ratio."""
        ratios = [one.ratio for one in self.compared if one.ratio is not None]
        return geometric_mean(ratios) if ratios else None


def compare(a: Side, b: Side, tolerance: float) -> Comparison:
    """Compares two results. tolerance: share by which a size may become slower, 0.02 for 2 %."""
    in_a, in_b = {**a.sizes, **a.failures}, {**b.sizes, **b.failures}
    both = [problem for problem in in_a if problem in in_b]
    return Comparison(
        (*(_size(problem, a, b, tolerance) for problem in both), *_served(both, a, b, tolerance)),
        tuple(problem for problem in in_a if problem not in in_b),
        tuple(problem for problem in in_b if problem not in in_a),
        tuple(_differences(a, b)),
    )


def _differences(a: Side, b: Side) -> list[str]:
    """Differences of device, versions or method, which change times independently of the configurations."""
    found = []
    for what, keys in _MATTERS.items():
        told = [(key, a.header.get(key, ""), b.header.get(key, "")) for key in keys]
        differ = [f"{key} {left or 'unknown'} and {right or 'unknown'}" for key, left, right in told if left != right]
        if differ:
            found.append(f"{what} differs: {', '.join(differ)}")
    return found


def _served(both: Sequence[Problem], a: Side, b: Side, tolerance: float) -> Iterator[Compared]:
    """Compares the configurations for consumers. Those that only A has are not comparable."""
    for (problem, consumer), left in a.served.items():
        right = b.served.get((problem, consumer))
        if problem in both and problem in b.sizes:
            why = f"B has no config for {consumer}"
            found = (
                _timed(problem, left, right, tolerance)
                if right
                else Compared(problem, ComparedVerdict.NOT_COMPARABLE, left, None, why=why)
            )
            yield replace(found, consumer=consumer)


def _size(problem: Problem, a: Side, b: Side, tolerance: float) -> Compared:
    left, right = a.sizes.get(problem), b.sizes.get(problem)
    in_a, in_b = a.failures.get(problem, ""), b.failures.get(problem, "")
    if left and right:
        return _timed(problem, left, right, tolerance)
    if left:
        return Compared(problem, ComparedVerdict.LOST, left, None, regression=True, why=in_b)
    if right:
        return Compared(problem, ComparedVerdict.FOUND, None, right, why=in_a)
    return Compared(problem, ComparedVerdict.NOT_COMPARABLE, None, None, why=f"neither has a config: {in_b}")


def _timed(problem: Problem, left: Timed, right: Timed, tolerance: float) -> Compared:
    if left.median_us is None or right.median_us is None:
        return Compared(problem, ComparedVerdict.NOT_COMPARABLE, left, right, why="a time is not known")
    if (left.source == "predicted") != (right.source == "predicted"):
        return Compared(problem, ComparedVerdict.NOT_COMPARABLE, left, right, why="one of the times is a prediction")
    ratio = right.median_us / left.median_us
    interval, noise = ratio_interval(left, right)
    verdict = _verdict(ratio, interval, tolerance)
    beyond = ratio > 1 + tolerance
    return Compared(
        problem, verdict, left, right, ratio, interval, noise, regression=beyond and verdict == ComparedVerdict.SLOWER
    )


def _verdict(ratio: float, interval: tuple[float, float] | None, tolerance: float) -> ComparedVerdict:
    within = abs(ratio - 1) <= tolerance
    low, high = interval or ((ratio, ratio) if not within else (1.0, 1.0))
    if low <= 1 <= high:
        return ComparedVerdict.SAME if within else ComparedVerdict.UNCLEAR
    return ComparedVerdict.SLOWER if low > 1 else ComparedVerdict.FASTER


def ratio_interval(a: Timed, b: Timed) -> tuple[tuple[float, float] | None, str]:
    """(the interval of B's time divided by A's, its source).

    From the 95 % intervals over processes of both, if known (``estimates.ratio_interval``). Else from p20 and p80 of
    both: the smallest and largest ratio of the two ranges, which contains 1 if the ranges overlap.
    """
    if a.interval_us and b.interval_us:
        return estimates.ratio_interval(b.interval_us, a.interval_us), "processes"
    if a.p20_us and a.p80_us and b.p20_us and b.p80_us:
        return (b.p20_us / a.p80_us, b.p80_us / a.p20_us), "p20-p80"
    return None, ""

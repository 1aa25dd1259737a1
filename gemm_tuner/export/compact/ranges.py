"""Which config serves which M, for each group of sizes that differ only in M: the fewest ranges, then least loss."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from gemm_tuner.export.compact.tuned import TunedSize
from gemm_tuner.gemm.problem import GemmProblem

POW2, LEARNED = "pow2", "learned"
BOUNDARIES = (POW2, LEARNED)


@dataclass(frozen=True, slots=True)
class Range:
    """The config for M from ``low`` to ``high``, both included; ``high`` None means no upper end.

    sizes: the tuned sizes in the range, by M.
    """

    name: str
    low: int
    high: int | None
    sizes: tuple[TunedSize, ...]


@dataclass(frozen=True, slots=True)
class Group:
    """The ranges of sizes that differ only in M, from M = 1 on without a gap."""

    problem: GemmProblem
    ranges: tuple[Range, ...]

    @property
    def label(self) -> str:
        batch = f"{self.problem.batch}x" if self.problem.batch > 1 else ""
        return f"{batch}N={self.problem.n} K={self.problem.k} {self.problem.signature}"


def group_sizes(sizes: Iterable[TunedSize]) -> list[list[TunedSize]]:
    """Groups of sizes that differ only in M, each sorted by M."""
    groups: dict[GemmProblem, list[TunedSize]] = {}
    for size in sizes:
        groups.setdefault(replace(size.problem, m=0), []).append(size)
    return [sorted(group, key=lambda size: size.problem.m) for group in groups.values()]


def ranges_of(group: Sequence[TunedSize], names: Sequence[str], loss: float, boundaries: str) -> Group:
    """The ranges of one group. names: the configs to choose from; each size must be served within the loss by one."""
    served = assign(group, names, loss)
    starts = [i for i in range(len(group)) if i == 0 or served[i] != served[i - 1]]
    ranges, low = [], 1
    for start, end in zip(starts, [*starts[1:], len(group)], strict=True):
        name, high = served[start], None
        if end < len(group):
            boundary = learned_boundary if boundaries == LEARNED else pow2_boundary
            high = boundary(group[end - 1], group[end], name, served[end])
        ranges.append(Range(name, low, high, tuple(group[start:end])))
        low = (high or 0) + 1
    return Group(group[0].problem, tuple(ranges))


def assign(group: Sequence[TunedSize], names: Sequence[str], loss: float) -> list[str]:
    """A config for each size, with the fewest changes along M and, among these, the least total loss.

    Dynamic programming over the sizes: for each config that serves a size, the best assignment that ends with it.
    """
    ways: dict[str, tuple[int, float, list[str]]] = {}
    for size in group:
        able = [name for name in names if size.is_served_by(name, loss)]
        step: dict[str, tuple[int, float, list[str]]] = {}
        for name in able:
            before = [(changes + (last != name), lost, path) for last, (changes, lost, path) in ways.items()]
            changes, lost, path = min(before, key=lambda way: way[:2]) if before else (0, 0.0, [])
            step[name] = (changes, lost + size.loss(name), [*path, name])
        ways = step
    return min(ways.values(), key=lambda way: way[:2])[2]


def pow2_boundary(left: TunedSize, right: TunedSize, _left_name: str, _right_name: str) -> int:
    """The smallest power of two not below the last M on the left; that M where this is not below the next M."""
    last, following = left.problem.m, right.problem.m
    power = 1 << (last - 1).bit_length()
    return power if power < following else last


def learned_boundary(left: TunedSize, right: TunedSize, left_name: str, right_name: str) -> int:
    """M at which the two configs take the same time, by linear interpolation of log time over log M.

    Where a time is missing, or one config is faster at both sizes, the geometric mean of the two M.
    """
    low, high = left.problem.m, right.problem.m
    place = 0.5
    if right_name in left.timed and left_name in right.timed:
        at_low, at_high = (
            math.log(1 + size.timed[left_name].slower_than(size.timed[right_name])) for size in (left, right)
        )
        if at_low < 0 < at_high:
            place = at_low / (at_low - at_high)
    crossing = math.exp(math.log(low) + place * math.log(high / low))
    return min(max(low, math.floor(crossing)), high - 1)

"""Computes the smallest set of configurations of a run, the ranges of M that each serves, and their results file.

Among all ways to serve sizes that differ only in M, the one with the fewest ranges is used, then the least loss.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from gemm_tuner.core.choice import Choice
from gemm_tuner.core.records import Verified
from gemm_tuner.export.gemm.compact import cover
from gemm_tuner.export.gemm.compact.tuned import TunedRun, TunedSize
from gemm_tuner.export.gemm.run_timings import SCREEN
from gemm_tuner.gemm.problem import GemmProblem
from gemm_tuner.store.results import FORMAT_VERSION, choice_row, run_reference, size_keys
from gemm_tuner.system.documents import dump_yaml
from gemm_tuner.system.row_facts import TIMED_FACTS

POW2, LEARNED = "pow2", "learned"
BOUNDARIES = (POW2, LEARNED)


@dataclass(frozen=True, slots=True)
class Range:
    """The configuration for M from ``low`` to ``high``, inclusive; ``high`` is None if there is no upper end.

    sizes: the tuned sizes in the range, by M.
    """

    name: str
    low: int
    high: int | None
    sizes: tuple[TunedSize, ...]


@dataclass(frozen=True, slots=True)
class Group:
    """The ranges of sizes that differ only in M; they start at M = 1 and have no gaps."""

    problem: GemmProblem
    ranges: tuple[Range, ...]

    @property
    def label(self) -> str:
        batch = f"{self.problem.batch}x" if self.problem.batch > 1 else ""
        return f"{batch}N={self.problem.n} K={self.problem.k} {self.problem.signature}"


@dataclass(frozen=True, slots=True)
class Serving:
    """A size and the configuration that serves it. loss: share by which it is slower than the size's winner."""

    size: TunedSize
    name: str

    @property
    def loss(self) -> float:
        return self.size.loss(self.name)


@dataclass(frozen=True, slots=True)
class Compacted:
    """names: configurations, those that serve most sizes first. servings: in the order of the run. method: of the
    cover."""

    names: tuple[str, ...]
    method: str
    servings: tuple[Serving, ...]
    groups: tuple[Group, ...]
    configs_before: int

    def served_by(self, name: str) -> list[Serving]:
        return [serving for serving in self.servings if serving.name == name]


def compact(run: TunedRun, loss: float, boundaries: str) -> Compacted:
    """The fewest configurations for all sizes. loss: share by which a size may be slower than with its winner, such as
    0.02 for 2 %."""
    sets, cost = serving_sets(run.sizes, loss)
    found = cover.smallest(sets, cost)
    groups = [ranges_of(group, found.names, loss, boundaries) for group in group_sizes(run.sizes)]
    by_problem = {size.problem: one.name for group in groups for one in group.ranges for size in one.sizes}
    servings = tuple(Serving(size, by_problem[size.problem]) for size in run.sizes)
    counts = {name: sum(serving.name == name for serving in servings) for name in found.names}
    names = tuple(name for name in sorted(found.names, key=lambda name: -counts[name]) if counts[name])
    return Compacted(names, found.method, servings, tuple(groups), len({size.chosen for size in run.sizes}))


def serving_sets(sizes: tuple[TunedSize, ...], loss: float) -> tuple[dict[str, frozenset[int]], dict[str, float]]:
    """For each configuration: (indices of the sizes that it serves within the loss, its mean loss for these).

    A configuration can serve a size only if it was timed for that size.
    """
    places: dict[str, list[int]] = {}
    for place, size in enumerate(sizes):
        for name in size.timed:
            if size.is_served_by(name, loss):
                places.setdefault(name, []).append(place)
    cost = {name: sum(sizes[i].loss(name) for i in where) / len(where) for name, where in places.items()}
    return {name: frozenset(where) for name, where in places.items()}, cost


def group_sizes(sizes: Iterable[TunedSize]) -> list[list[TunedSize]]:
    """Groups of sizes that differ only in M, each sorted by M."""
    groups: dict[GemmProblem, list[TunedSize]] = {}
    for size in sizes:
        groups.setdefault(replace(size.problem, m=0), []).append(size)
    return [sorted(group, key=lambda size: size.problem.m) for group in groups.values()]


def ranges_of(group: Sequence[TunedSize], names: Sequence[str], loss: float, boundaries: str) -> Group:
    """The ranges of one group. names: the available configurations, which must serve every size within the loss."""
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
    """A configuration for each size, with the fewest changes along M and, among these, the least total loss.

    Dynamic programming over the sizes: for each configuration that serves a size, the best assignment ending with it.
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
    """The end of the left range: the smallest power of two >= the left M; the left M itself if that is not below the
    right M."""
    last, following = left.problem.m, right.problem.m
    power = 1 << (last - 1).bit_length()
    return power if power < following else last


def learned_boundary(left: TunedSize, right: TunedSize, left_name: str, right_name: str) -> int:
    """The M at which two configurations take the same time, by linear interpolation of log time over log M.

    If a time is missing, or one configuration is faster at both sizes, the geometric mean of the two M.
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


def results_text(compacted: Compacted, run: TunedRun, loss: float, path: Path) -> str:
    """The text of a results file of the served sizes, for ``path``. Losses are comments, because rows have no key for
    them."""
    date = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    header = {**run.header, "date": date, "run": run_reference(path, run.folder)}
    parts = [
        "# Written by tune_gemm.py compact; docs/compare.md explains it, docs/results_format.md the fields.\n",
        f"# {len(compacted.names)} configs within {loss * 100:g} %, where there were {compacted.configs_before}.\n",
        dump_yaml({"format_version": FORMAT_VERSION, "header": header}),
        "configs:\n",
    ]
    source = str(run.header.get("source") or "measured")
    for serving in compacted.servings:
        stage = serving.size.timed[serving.name].stage
        parts.append(f"# loss {serving.loss * 100:.2f} % against {serving.size.chosen}, by the {stage}\n")
        parts.append(dump_yaml([_row(serving, source)]))
    failures = [{**size_keys(problem), "reason": reason} for problem, reason in run.failures]
    return "".join(parts) + dump_yaml({"without_config": failures})


def _row(serving: Serving, source: str) -> dict[str, Any]:
    """The row of a size. A configuration other than the size's winner was not checked, so it is not verified. A
    configuration that was only screened has no time, because screening times are not comparable with finals."""
    size, timed = serving.size, serving.size.timed[serving.name]
    unknown = math.nan
    choice = Choice(
        problem=size.problem,
        config=timed.config,
        source=source,
        verified=size.verified if serving.name == size.chosen else Verified.FALSE,
        median_us=timed.time_us,
        p20_us=None,
        p80_us=None,
        num_samples=timed.samples,
        vendor_us=None,
        max_abs_error=unknown,
        error_over_bound=unknown,
        runner_up="",
        gap_pct=None,
        tie=False,
        roofline_pct=unknown if size.roofline_us is None else size.roofline_us / timed.time_us * 100,
        served=size.served,
    )
    row = choice_row(choice)
    unfit = TIMED_FACTS if timed.stage == SCREEN else ("tie",) if timed.samples else ("tie", "samples")
    return {key: value for key, value in row.items() if key not in unfit}

"""Labels of sizes for tables, and titles. They are for display only, never for lookup."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gemm_tuner.core.records import Problem
from gemm_tuner.core.workload import workload_of

NAMED = 3  # sizes in a line


@dataclass(frozen=True, slots=True)
class Labels:
    """The labels of the sizes of one table.

    common: what all sizes have in common, for the table's title, such as ``bf16 nn``; empty for a single size, and for
            sizes of several kinds.
    of:     the rest for each size, such as ``4096x4096x4096``; unique, if need be a key.
    """

    common: str
    of: Mapping[Problem, str]


def labels(problems: Iterable[Problem]) -> Labels:
    """The labels of sizes that are shown in one table."""
    parts = {problem: workload_of(problem.kind).label_parts(problem) for problem in problems}
    rows = [(*before, *after) for before, _, after in parts.values()]
    alike = len(rows) > 1 and len({problem.kind for problem in parts}) == 1
    places = list(zip(*rows, strict=True)) if alike else []
    shared = [len(set(values)) == 1 for values in places]
    common = [values[0] for values, same in zip(places, shared, strict=True) if same and values[0]]
    of = {}
    for (problem, (before, extents, _)), row in zip(parts.items(), rows, strict=True):
        own = ["" if shared and shared[place] else value for place, value in enumerate(row)]
        words = (*own[: len(before)], extents, *own[len(before) :])
        of[problem] = " ".join(filter(None, words))  # a host function without arguments has no extents
    counts = Counter(of.values())
    return Labels(" ".join(common), {one: text if counts[text] == 1 else one.key for one, text in of.items()})


def label(problem: Problem) -> str:
    """The label of a single size, such as ``4096x4096x4096 bf16 nn``."""
    return labels([problem]).of[problem]


def some(names: Sequence[str], count: int = NAMED) -> str:
    """The first ``count`` names, and how many more there are."""
    more = f" and {len(names) - count} more" if len(names) > count else ""
    return ", ".join(names[:count]) + more


def legend(problems: Iterable[Problem]) -> dict[str, str]:
    """The meanings of the abbreviations that occur in the labels of these sizes."""
    meanings: dict[str, str] = {}
    used: set[str] = set()
    for problem in problems:
        workload = workload_of(problem.kind)
        before, _, after = workload.label_parts(problem)
        used.update((*before, *after))
        meanings.update(workload.label_meanings)
    return {part: meaning for part, meaning in meanings.items() if part in used}


def titled(what: str, source: str, device: str) -> str:
    """A title that says whether times were measured on a device, replayed, or predicted for it."""
    if source == "predicted":
        return f"{what} predicted for {device}"
    return f"{what} on {device}{', replayed' if source == 'replayed' else ''}"

"""Profiler starts: how many a share needs, and how its sizes are dealt over them."""

from __future__ import annotations

import pytest

from gemm_tuner.fleet import MOST_ENTRIES_A_START, deal, starts_for
from gemm_tuner.launcher.plan import Work
from gemm_tuner.records import GemmProblem


def work_of(*counts: int) -> list[Work]:
    """Sizes with so many configurations to time."""
    return [Work(GemmProblem(16, 16, m), ((0, "name"),) * count) for m, count in enumerate(counts, 1)]


@pytest.mark.parametrize(
    ("counts", "starts"),
    [
        ((), 1),
        ((0,), 1),
        ((1,), 1),
        ((MOST_ENTRIES_A_START,), 1),
        ((MOST_ENTRIES_A_START, 1), 2),
        ((3000,) * 20, 4),
        ((3000,) * 21, 5),
    ],
)
def test_no_start_holds_more_than_a_profiler_can_read(counts: tuple[int, ...], starts: int) -> None:
    share = work_of(*counts)
    assert starts_for(share) == starts
    assert all(sum(len(w.entries) for w in part) <= MOST_ENTRIES_A_START for part in deal(share, starts))


def test_a_size_stays_whole_however_large() -> None:
    share = work_of(2 * MOST_ENTRIES_A_START + 1)
    assert starts_for(share) == 3
    assert deal(share, 3) == [share]


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_dealing_loses_nothing(count: int) -> None:
    share = work_of(5, 4, 3, 2, 1)
    parts = deal(share, count)
    assert len(parts) == min(count, 5)
    assert sorted(w.problem.k for part in parts for w in part) == [1, 2, 3, 4, 5]
    assert deal([], count) == [[]]

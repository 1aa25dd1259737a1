"""Which time belongs to which call: by exact name and order, or by scope. What does not fit has no time."""

from __future__ import annotations

from dataclasses import replace

import pytest
from traced_calls import (
    ALL_RIGHT,
    GOOD,
    ONE,
    PLANNED,
    REDUCE,
    REDUCE_TWO,
    SHARED,
    SPLIT,
    THREE,
    TWO,
    A,
    B,
    Rows,
    Samples,
    by_order,
    calls,
    plain,
    sharing,
    trace,
)

from gemm_tuner.core.markers import BEGIN_SYMBOL, END_SYMBOL, FLUSH_SYMBOL
from gemm_tuner.launch.journal import Begin, Called, End, Round
from gemm_tuner.launch.plan import VENDOR
from gemm_tuner.measure.attribution import Call, calls_of, join

OTHER = "void at::native::fill<float>"


def test_every_call_gets_its_own_kernel() -> None:
    rows = [(A, 1.0), (B, 2.0), (A, 3.0), (B, 4.0)]
    assert by_order(rows, plain(A, B, A, B)) == ({(0, A): (1.0, 3.0), (0, B): (2.0, 4.0)}, set())


def test_a_name_that_begins_another_is_another() -> None:
    assert A.startswith(B[:-1]) or B.startswith(A)
    assert by_order([(B, 2.0)], plain(A, B)) == ({(0, B): (2.0,)}, {(0, A)})
    assert by_order([(f"{A}_more", 2.0)], plain(A)) == ({}, {(0, A)})


def test_all_kernels_of_a_call_are_summed() -> None:
    split = calls(*[(0, SPLIT, (SPLIT, REDUCE))] * 2, (0, A, (A,)))
    rows = [(SPLIT, 10.0), (REDUCE, 1.0), (SPLIT, 20.0), (REDUCE, 2.0), (A, 5.0)]
    assert by_order(rows, split) == ({(0, SPLIT): (11.0, 22.0), (0, A): (5.0,)}, set())


def test_kernels_of_a_call_have_times_of_their_own_in_the_calls_order() -> None:
    """A profiler may list a kernel of another stream first; the median is that of each kernel."""
    rows = [(SPLIT, 9.0), (REDUCE, 9.0), (SPLIT, 5.0), (REDUCE, 1.0), (SPLIT, 7.0), (REDUCE, 3.0), (A, 2.0)]
    planned = calls((0, SPLIT, (SPLIT, REDUCE), True), *[(0, SPLIT, (SPLIT, REDUCE))] * 2, (0, A, (A,)))
    assert join(trace(rows), planned, by_scope=False).kernels_us == {(0, SPLIT): (6.0, 2.0)}
    scopes = ["L0", "L0", "L1", "L1", "L2", "L2", "L3"]
    turned = [*rows[:2], rows[3], rows[2], *rows[4:]]
    assert join(trace(turned, scopes), planned, by_scope=True).kernels_us == {(0, SPLIT): (6.0, 2.0)}


@pytest.mark.parametrize("by_scope", [False, True])
def test_a_kernel_that_a_call_launches_twice_has_two_times(by_scope: bool) -> None:
    rows = [(A, 6.0), (B, 1.0), (A, 2.0), (A, 8.0), (B, 3.0), (A, 4.0)]
    planned = calls(*[(0, A, (A, B, A))] * 2)
    scopes = ["L0"] * 3 + ["L1"] * 3 if by_scope else None
    assert join(trace(rows, scopes), planned, by_scope=by_scope).kernels_us == {(0, A): (7.0, 2.0, 3.0)}


def test_the_vendors_kernels_have_times_of_their_own_where_all_its_calls_have_as_many() -> None:
    one = [(BEGIN_SYMBOL, 1.0), ("gemm", 4.0), ("reduce", 2.0), (END_SYMBOL, 1.0)]
    other = [(BEGIN_SYMBOL, 1.0), ("gemm", 6.0), (END_SYMBOL, 1.0)]
    planned = calls(*[(0, VENDOR, ())] * 2)
    twice = [*one, (BEGIN_SYMBOL, 1.0), ("gemm", 6.0), ("reduce", 1.0), (END_SYMBOL, 1.0)]
    assert join(trace(twice), planned, by_scope=False).kernels_us == {(0, VENDOR): (5.0, 1.5)}
    for rows in ([*one, *other], [*other, *other]):
        assert join(trace(rows), planned, by_scope=False).kernels_us == {}


def test_the_span_of_several_kernels_counts_where_the_queue_was_full() -> None:
    """And their sum where the host may have kept the GPU waiting, or the profiler keeps no real time."""
    call = calls((0, SPLIT, (SPLIT, REDUCE)), (0, VENDOR, ()), (0, A, (A,)))
    rows = [
        (SPLIT, 10.0),
        (REDUCE, 3.0),
        (BEGIN_SYMBOL, 1.0),
        ("gemm", 4.0),
        ("reduce", 2.0),
        (END_SYMBOL, 1.0),
        (A, 5.0),
    ]
    seen = trace(rows)
    # The second starts 1 us before the first ends, as programmatic dependent launch lets it; the vendor's 2 us after.
    seen["start_ns"] = [0, 9_000, 20_000, 22_000, 28_000, 31_000, 40_000]
    full = [replace(one, queued=True) for one in call]
    spans = {(0, SPLIT): (12.0,), (0, VENDOR): (8.0,), (0, A): (5.0,)}
    sums = {(0, SPLIT): (13.0,), (0, VENDOR): (6.0,), (0, A): (5.0,)}
    assert join(seen, full, by_scope=False, real_time=True).samples_us == spans
    assert join(seen, call, by_scope=False, real_time=True).samples_us == sums
    assert join(seen, full, by_scope=False).samples_us == sums


def test_warm_calls_are_matched_and_not_counted() -> None:
    planned = calls((0, A, (A,), True), (0, A, (A,)), (0, B, (B,), True))
    assert by_order([(A, 100.0), (A, 1.0), (B, 7.0)], planned) == ({(0, A): (1.0,)}, set())


@pytest.mark.parametrize("at", range(len(GOOD) + 1))
@pytest.mark.parametrize("name", [OTHER, f"{REDUCE}_of_another", "gemm_tile"])
def test_kernels_that_nobody_knows_count_nowhere(at: int, name: str) -> None:
    assert by_order([*GOOD[:at], (name, 500.0), *GOOD[at:]], PLANNED) == (ALL_RIGHT, set())


def test_flushes_and_markers_count_nowhere() -> None:
    starts = {A, B, SPLIT}
    rows = [row for one in GOOD for row in ([(FLUSH_SYMBOL, 40.0), one] if one[0] in starts else [one])]
    assert by_order(rows, PLANNED) == (ALL_RIGHT, set())


def test_a_second_kernel_behind_a_flush_belongs_to_no_one() -> None:
    """A crash loses the journal's last lines: an unknown call's second kernel must not join the call before it."""
    rows = [(SPLIT, 10.0), (REDUCE, 1.0), (FLUSH_SYMBOL, 40.0), ("gemm_tile_lost", 9.0), (REDUCE, 5.0)]
    assert by_order(rows, calls((0, SPLIT, (SPLIT, REDUCE)))) == ({(0, SPLIT): (11.0,)}, set())


def test_kernels_in_another_order_than_journalled_are_missing() -> None:
    planned = calls((0, SPLIT, (SPLIT, REDUCE, REDUCE_TWO)))
    assert by_order([(SPLIT, 1.0), (REDUCE_TWO, 1.0), (REDUCE, 1.0)], planned) == ({}, {(0, SPLIT)})


def test_two_sizes_share_a_kernel() -> None:
    planned = [*plain(A, A, work=0), *calls((1, A, (A,)), (1, B, (B,)))]
    planned = [Call(n, c.work, c.name, c.symbols, c.warm) for n, c in enumerate(planned)]
    rows = [(A, 1.0), (A, 2.0), (A, 30.0), (B, 4.0)]
    assert by_order(rows, planned) == ({(0, A): (1.0, 2.0), (1, A): (30.0,), (1, B): (4.0,)}, set())
    assert by_order(rows[1:], planned) == ({(1, B): (4.0,)}, {(0, A), (1, A)})


def test_configurations_of_one_kernel_are_told_by_order_one_after_another() -> None:
    """As in a screen: a warm call, then timed ones; a clear loser has only one of them."""
    planned = sharing(*[ONE] * 4, *[TWO] * 2, B, B, *[THREE] * 4, warm=1)
    rows = [(SHARED, us) for us in (99.0, 1.0, 2.0, 3.0, 99.0, 40.0)]
    rows += [(B, 99.0), (B, 7.0), *((SHARED, us) for us in (99.0, 4.0, 5.0, 6.0))]
    assert by_order(rows, planned) == (
        {(0, ONE): (1.0, 2.0, 3.0), (0, TWO): (40.0,), (0, B): (7.0,), (0, THREE): (4.0, 5.0, 6.0)},
        set(),
    )


def test_configurations_of_one_kernel_are_told_by_order_interleaved() -> None:
    """As in finals: every round in another order."""
    planned = sharing(ONE, TWO, B, TWO, B, ONE, B, ONE, TWO)
    rows = [(B if call.name == B else SHARED, 1.0 + call.number) for call in planned]
    assert by_order(rows, planned) == (
        {(0, ONE): (1.0, 6.0, 8.0), (0, TWO): (2.0, 4.0, 9.0), (0, B): (3.0, 5.0, 7.0)},
        set(),
    )


def test_configurations_of_one_kernel_in_two_launches_are_told_by_order() -> None:
    planned = calls((0, ONE, (SHARED, REDUCE)), (0, TWO, (SHARED, REDUCE)), (1, ONE, (SHARED, REDUCE)))
    rows = [
        (FLUSH_SYMBOL, 40.0),
        (SHARED, 10.0),
        (REDUCE, 1.0),
        (SHARED, 20.0),
        (REDUCE, 2.0),
        (SHARED, 30.0),
        (REDUCE, 3.0),
    ]
    assert by_order(rows, planned) == ({(0, ONE): (11.0,), (0, TWO): (22.0,), (1, ONE): (33.0,)}, set())
    without_the_second_reduction = by_order([*rows[:4], *rows[5:]], planned)
    assert without_the_second_reduction == ({(0, ONE): (11.0,), (1, ONE): (33.0,)}, {(0, TWO)})
    without_the_second_call = by_order([*rows[:3], *rows[5:]], planned)
    assert without_the_second_call == ({}, {(0, ONE), (0, TWO), (1, ONE)})


def test_the_vendor_is_all_between_its_markers() -> None:
    planned = calls((0, VENDOR, ()), (0, A, (A,)), (0, VENDOR, ()))
    rows = [
        (FLUSH_SYMBOL, 40.0), (BEGIN_SYMBOL, 1.0), ("cublas_splitk", 10.0), ("cublas_reduce", 2.0), (END_SYMBOL, 1.0),
        (FLUSH_SYMBOL, 40.0), (A, 5.0), (OTHER, 9.0),
        (FLUSH_SYMBOL, 40.0), (BEGIN_SYMBOL, 1.0), ("cublas_one", 7.0), (END_SYMBOL, 1.0),
    ]  # fmt: skip
    assert by_order(rows, planned) == ({(0, VENDOR): (12.0, 7.0), (0, A): (5.0,)}, set())


@pytest.mark.parametrize("lost", [1, 2, 3, 6, 7, 8])
def test_a_broken_vendor_bracket_costs_the_vendor_only(lost: int) -> None:
    planned = calls((0, VENDOR, ()), (0, A, (A,)), (0, VENDOR, ()), (0, B, (B,)))
    rows = [
        (FLUSH_SYMBOL, 40.0), (BEGIN_SYMBOL, 1.0), ("cublas_one", 10.0), (END_SYMBOL, 1.0), (A, 5.0),
        (FLUSH_SYMBOL, 40.0), (BEGIN_SYMBOL, 1.0), ("cublas_one", 7.0), (END_SYMBOL, 1.0), (B, 6.0),
    ]  # fmt: skip
    assert by_order(rows[:lost] + rows[lost + 1 :], planned) == ({(0, A): (5.0,), (0, B): (6.0,)}, {(0, VENDOR)})


def test_an_empty_trace_has_no_times() -> None:
    planned = [*PLANNED, *calls((0, VENDOR, ()))]
    everything = {(0, A), (0, B), (0, SPLIT), (0, VENDOR)}
    assert by_order([], planned) == ({}, everything)
    joined = join(trace([]), planned, by_scope=True)
    assert (joined.samples_us, set(joined.missing)) == ({}, everything)
    assert join(trace(GOOD), [], by_scope=False).samples_us == {}


SCOPED: list[tuple[str, float, str]] = [
    (A, 100.0, "L0"), (FLUSH_SYMBOL, 40.0, ""), (A, 1.0, "L1"), (SPLIT, 10.0, "L2"), (REDUCE, 1.0, "L2"),
    (BEGIN_SYMBOL, 1.0, "L3"), ("cublas_one", 7.0, "L3"), ("cublas_two", 2.0, "L3"), (END_SYMBOL, 1.0, "L3"),
    (OTHER, 9.0, ""), (B, 3.0, "L4"),
]  # fmt: skip
SCOPED_CALLS = calls(
    (0, A, (A,), True), (0, A, (A,)), (0, SPLIT, (SPLIT, REDUCE)), (0, VENDOR, ()), (1, B, (B,))
)  # fmt: skip
SCOPED_RIGHT = {(0, A): (1.0,), (0, SPLIT): (11.0,), (0, VENDOR): (9.0,), (1, B): (3.0,)}


def by_scope(rows: list[tuple[str, float, str]]) -> tuple[Samples, set[tuple[int, str]]]:
    joined = join(trace([(n, t) for n, t, _ in rows], [s for *_, s in rows]), SCOPED_CALLS, by_scope=True)
    assert not set(joined.samples_us) & set(joined.missing)
    return joined.samples_us, set(joined.missing)


def test_by_scope_the_order_does_not_matter() -> None:
    assert by_scope(SCOPED) == (SCOPED_RIGHT, set())
    assert by_scope(SCOPED[::-1]) == (SCOPED_RIGHT, set())


@pytest.mark.parametrize(
    ("rows", "lost"),
    [
        ([r for r in SCOPED if r[2] != "L2"], (0, SPLIT)),
        ([r for r in SCOPED if r[0] != REDUCE], (0, SPLIT)),
        ([*SCOPED, (REDUCE, 1.0, "L2")], (0, SPLIT)),
        ([*SCOPED, (OTHER, 1.0, "L4")], (1, B)),
        ([(n if n != B else A, t, s) for n, t, s in SCOPED], (1, B)),
        ([r for r in SCOPED if r[2] != "L0"], (0, A)),
        ([r for r in SCOPED if not r[0].startswith("cublas")], (0, VENDOR)),
        ([(n, t, "" if s == "L4" else s) for n, t, s in SCOPED], (1, B)),
    ],
)
def test_by_scope_what_does_not_fit_is_missing(rows: list[tuple[str, float, str]], lost: tuple[int, str]) -> None:
    assert by_scope(rows) == ({key: times for key, times in SCOPED_RIGHT.items() if key != lost}, {lost})


def test_calls_come_from_the_journal_in_order() -> None:
    journal = [
        Begin(0, A),
        Called(0, 0, A, (A, REDUCE), warm=True),
        End(0, A),
        Round(2, 3),
        Called(1, 2, VENDOR, (), warm=False, flushes=2001, queued=True),
    ]
    assert calls_of(journal) == [Call(0, 0, A, (A, REDUCE), True), Call(1, 2, VENDOR, (), False, 2001, 3, True)]


def test_rows_of_another_process_are_not_counted() -> None:
    """Neither as calls nor inside the vendor's bracket, where every kernel counts."""
    rows = [(A, 1.0), (OTHER, 50.0), (BEGIN_SYMBOL, 1.0), (OTHER, 50.0), ("cublas", 3.0), (END_SYMBOL, 1.0), (A, 2.0)]
    processes = ["7", "8", "7", "8", "7", "7", "7"]
    planned = calls((0, A, (A,)), (0, VENDOR, ()), (0, A, (A,)))
    joined = join(trace(rows, processes=processes), planned, by_scope=False)
    assert joined.samples_us == {(0, A): (1.0, 2.0), (0, VENDOR): (3.0,)} and not joined.missing


@pytest.mark.parametrize("by_scope", [False, True])
def test_the_same_kernels_in_two_processes_give_no_time(by_scope: bool) -> None:
    rows, planned = [(A, 1.0), (A, 2.0), (B, 3.0)], plain(A, B)
    joined = join(trace(rows, ["L0", "L0", "L1"], ["7", "8", "7"]), planned, by_scope=by_scope)
    assert not joined.samples_us
    assert set(joined.missing) == {(0, A), (0, B)}
    assert "in 2 processes: 7, 8" in joined.missing[0, A]


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([(A, 1.0), (A, 1.0), (B, 3.0)], "the trace has 2 calls of"),
        ([(A, 1.0), (B, 3.0), (A, 1.0)], "the trace has 2 calls of"),
        ([(B, 3.0)], "the trace has 0 calls of"),
        ([(A, 0.0), (B, 3.0)], "call 0 shows a time of 0"),
    ],
    ids=["repeated", "extra", "missing", "no time"],
)
def test_a_row_that_the_journal_does_not_explain_has_its_reason(rows: Rows, words: str) -> None:
    joined = join(trace(rows), plain(A, B), by_scope=False)
    assert joined.samples_us == {(0, B): (3.0,)}
    assert words in joined.missing[0, A]

"""Which configuration a lost or doubled row of a trace costs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from traced_calls import (
    ALL_RIGHT,
    GOOD,
    ONE,
    PLANNED,
    SHARED,
    SPLIT,
    THREE,
    TWO,
    A,
    B,
    Rows,
    by_order,
    calls,
    plain,
    sharing,
    trace,
)

from gemm_tuner.core.markers import BEGIN_SYMBOL, END_SYMBOL, FLUSH_SYMBOL
from gemm_tuner.launch.plan import VENDOR
from gemm_tuner.measure.attribution import Call, join


@pytest.mark.parametrize("dropped", range(len(GOOD)))
def test_a_lost_row_costs_its_configuration_only(dropped: int) -> None:
    """All of it: it had two calls at most."""
    lost = {A: A, B: B}.get(GOOD[dropped][0], SPLIT)
    samples, missing = by_order(GOOD[:dropped] + GOOD[dropped + 1 :], PLANNED)
    assert missing == {(0, lost)}
    assert samples == {key: times for key, times in ALL_RIGHT.items() if key[1] != lost}


@pytest.mark.parametrize("repeated", range(len(GOOD)))
def test_a_row_twice_costs_its_configuration_only(repeated: int) -> None:
    hit = {A: A, B: B}.get(GOOD[repeated][0], SPLIT)
    samples, missing = by_order(GOOD[: repeated + 1] + GOOD[repeated:], PLANNED)
    assert missing == {(0, hit)}
    assert samples == {key: times for key, times in ALL_RIGHT.items() if key[1] != hit}


@pytest.mark.parametrize("at", [0, 3, 4])
def test_a_row_too_many_of_a_shared_kernel_costs_all_that_share_it_and_says_so(at: int) -> None:
    planned = sharing(ONE, ONE, B, TWO, THREE)
    rows = [(B if call.name == B else SHARED, 1.0 + call.number) for call in planned]
    joined = join(trace([*rows[:at], (SHARED, 9.0), *rows[at:]]), planned, by_scope=False)
    assert joined.samples_us == {(0, B): (3.0,)}
    assert set(joined.missing) == {(0, ONE), (0, TWO), (0, THREE)}
    assert set(joined.missing.values()) == {
        f"the trace has 5 calls of {SHARED}, the journal 4, which costs all 3 configurations of this start that "
        "share it their times"
    }


@pytest.mark.parametrize(
    ("at", "lost"), [(0, [(0, ONE)]), (1, [(0, ONE)]), (3, [(0, TWO), (0, THREE)]), (4, [(0, TWO), (0, THREE)])]
)
def test_without_flushes_a_lost_row_costs_the_calls_of_its_kernel_that_stand_together(
    at: int, lost: list[tuple[int, str]]
) -> None:
    planned = sharing(ONE, ONE, B, TWO, THREE)
    rows = [(B if call.name == B else SHARED, 1.0 + call.number) for call in planned]
    right = by_order(rows, planned)[0]
    samples, missing = by_order(rows[:at] + rows[at + 1 :], planned)
    assert missing == set(lost)
    assert samples == {key: times for key, times in right.items() if key not in lost}


def flushed(planned: list[Call], *, spin_up: int = 0) -> list[Call]:
    """As the launcher journals them: a flush before each timed call, and a spin-up before the first of all."""
    return [replace(call, flushes=(not call.warm) + spin_up * (call.number == 0)) for call in planned]


@pytest.mark.parametrize("at", range(4))
def test_with_flushes_a_lost_row_costs_its_call_alone(at: int) -> None:
    planned = flushed(sharing(*[ONE] * 4, *[TWO] * 4, *[THREE] * 4), spin_up=5)
    rows = rows_of(planned)
    joined = join(trace(row for row in rows if row != (SHARED, 1.0 + 4 + at)), planned, by_scope=False)
    two = tuple(5.0 + call for call in range(4) if call != at)
    assert joined.samples_us == {(0, ONE): (1.0, 2.0, 3.0, 4.0), (0, TWO): two, (0, THREE): (9.0, 10.0, 11.0, 12.0)}
    assert not joined.missing


def rows_of(planned: list[Call]) -> Rows:
    """What a profiler shows that loses nothing; call n takes 1 + n us in each of its kernels."""
    return [
        (name, 40.0 if name == FLUSH_SYMBOL else 1.0 + call.number)
        for call in planned
        for name in [FLUSH_SYMBOL] * (call.flushes or 0) + list(call.symbols)
    ]


def test_a_configuration_that_lost_half_of_its_calls_is_missing() -> None:
    planned = flushed(sharing(*[ONE] * 4, *[TWO] * 4))
    rows = [row for row in rows_of(planned) if row not in ((SHARED, 1.0), (SHARED, 2.0))]
    joined = join(trace(rows), planned, by_scope=False)
    assert joined.samples_us == {(0, TWO): (5.0, 6.0, 7.0, 8.0)}
    assert joined.missing == {(0, ONE): f"the trace has 6 calls of {SHARED}, the journal 8"}


def test_in_finals_a_lost_row_costs_its_round_of_its_size() -> None:
    """The judge compares samples round by round: they must not move up. Another size is not touched."""
    order = [(work, name, turn) for work in (0, 1) for turn in range(3) for name in (ONE, TWO)]
    planned = [Call(n, work, name, (SHARED,), False, 1, turn) for n, (work, name, turn) in enumerate(order)]
    joined = join(trace(row for row in rows_of(planned) if row != (SHARED, 3.0)), planned, by_scope=False)
    assert joined.samples_us == {
        (0, ONE): (1.0, 5.0), (0, TWO): (2.0, 6.0), (1, ONE): (7.0, 9.0, 11.0), (1, TWO): (8.0, 10.0, 12.0),
    }  # fmt: skip
    assert not joined.missing


def test_a_vendor_call_that_lost_one_of_its_kernels_has_no_time() -> None:
    planned = flushed(calls(*[(0, VENDOR, ())] * 3, (1, VENDOR, ())))
    one = [(FLUSH_SYMBOL, 40.0), (BEGIN_SYMBOL, 1.0), ("gemv", 7.0), ("reduce", 2.0), (END_SYMBOL, 1.0)]
    other = [(FLUSH_SYMBOL, 40.0), (BEGIN_SYMBOL, 1.0), ("gemv", 5.0), (END_SYMBOL, 1.0)]
    rows = [*one, *one[:2], *one[3:], *one, *other]
    assert by_order(rows, planned) == ({(0, VENDOR): (9.0, 9.0), (1, VENDOR): (5.0,)}, set())


def test_a_lost_row_of_a_kernel_of_one_configuration_says_nothing_of_others() -> None:
    joined = join(trace([(A, 1.0)]), plain(A, A), by_scope=False)
    assert joined.missing == {(0, A): f"the trace has 1 calls of {A}, the journal 2"}


def test_by_scope_a_lost_row_of_a_shared_kernel_costs_one_configuration() -> None:
    planned = sharing(ONE, TWO, ONE, THREE)
    rows = [(SHARED, 1.0 + call.number) for call in planned]
    scopes = [f"L{call.number}" for call in planned]
    joined = join(trace(rows, scopes), planned, by_scope=True)
    assert joined.samples_us == {(0, ONE): (1.0, 3.0), (0, TWO): (2.0,), (0, THREE): (4.0,)} and not joined.missing
    joined = join(trace(rows[:1] + rows[2:], scopes[:1] + scopes[2:]), planned, by_scope=True)
    assert joined.samples_us == {(0, ONE): (1.0, 3.0), (0, THREE): (4.0,)} and set(joined.missing) == {(0, TWO)}

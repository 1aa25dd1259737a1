"""The lease table under schedules that nobody would write: every item finishes once, and no result is lost."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule

from gemm_tuner.store.leases import HOLD_S, Lease, Leases
from gemm_tuner.store.store import Store, StoreFault

WORKERS = [f"{node}{number}" for node in "abcd" for number in (0, 1)]


class Schedules(RuleBasedStateMachine):
    """A model beside the table: what each lease was, and what has come of the items."""

    held = Bundle("held")

    def __init__(self) -> None:
        super().__init__()
        self.table, self.now_s = Leases.in_memory(), 0.0
        self.offered: list[str] = []
        self.finished: dict[str, Lease] = {}
        self.until: dict[Lease, float] = {}  # of leases that are held

    @rule(again=st.booleans())
    def offer(self, again: bool) -> None:
        if not again or not self.offered:
            self.offered.append(f"item{len(self.offered)}")
        self.table.offer(self.offered[-1:])

    @rule(worker=st.sampled_from(WORKERS), numbers=st.sets(st.integers(0, 9), max_size=3), target=held)
    def take(self, worker: str, numbers: set[int]) -> object:
        names = [f"item{number}" for number in sorted(numbers)]
        taken = self.table.take(names, worker, worker[0], self.now_s)
        busy = {lease.item for lease in self.until} | self.finished.keys()
        assert [lease.item for lease in taken] == [one for one in names if one in self.offered and one not in busy]
        self.until.update(dict.fromkeys(taken, self.now_s + HOLD_S))
        return multiple(*taken)

    @rule(worker=st.sampled_from(WORKERS))
    def beat(self, worker: str) -> None:
        self.table.beat(worker, self.now_s)
        for lease in self.until:
            if lease.worker == worker:
                self.until[lease] = self.now_s + HOLD_S

    @rule(seconds=st.floats(0, 40), worker=st.sampled_from(WORKERS))
    def time_goes_on(self, seconds: float, worker: str) -> None:
        """And one worker is looked at."""
        self.now_s += seconds
        of_worker = [lease for lease in self.until if lease.worker == worker]
        late = [lease for lease in of_worker if self.until[lease] < self.now_s]
        assert self.table.are_held(of_worker, self.now_s) == (not late)
        assert all(self.table.are_held([one], self.now_s) == (one not in late) for one in of_worker)
        self._forget(late)

    @rule(worker=st.sampled_from(WORKERS))
    def dies(self, worker: str) -> None:
        gone = {one for one in self.until if one.worker == worker}
        assert set(self.table.lose(worker)) == gone
        self._forget(gone)

    @rule(lease=consumes(held))
    def result_comes(self, lease: Lease) -> None:
        """In time or late, from a lease that is held or was lost."""
        first = self.table.finish(lease)
        assert first == (lease.item not in self.finished)
        assert not self.table.finish(lease)
        if first:
            self.finished[lease.item] = lease
            self._forget([one for one in self.until if one.item == lease.item])

    @rule(leases=st.lists(held, max_size=3))
    def gives_up(self, leases: list[Lease]) -> None:
        self.table.give_up(leases)
        self._forget(set(leases) & self.until.keys())

    @rule()
    def driver_is_killed(self) -> None:
        self.table.begin_again()
        self.until.clear()

    def _forget(self, leases: object) -> None:
        for lease in list(leases):  # type: ignore[call-overload]
            del self.until[lease]

    @invariant()
    def no_item_is_lost(self) -> None:
        counts = self.table.counts()
        assert counts.get("finished", 0) == len(self.finished)
        assert counts.get("leased", 0) == len(self.until)
        assert sum(counts.values()) == len(self.offered)

    def teardown(self) -> None:
        """A worker that lives finishes all that is left."""
        for worker in WORKERS:
            self.table.lose(worker)
        assert all(self.table.finish_all(self.table.take(self.offered, "d0", "d", self.now_s)))
        assert self.table.counts() == ({"finished": len(self.offered)} if self.offered else {})


TestSchedules = Schedules.TestCase
TestSchedules.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)


def test_a_machine_that_dies_twice_counts_once() -> None:
    table = Leases.in_memory()
    table.offer(["one"])
    for node in ("a", "a", "b"):
        table.take(["one"], "worker", node, 0.0)
        table.lose("worker")
    assert table.times_lost("one") == 2


def test_only_what_is_open_is_leased() -> None:
    table = Leases.in_memory()
    table.offer(["one", "two"])
    assert [lease.item for lease in table.take(["two", "unknown"], "w", "n", 0.0)] == ["two"]
    assert [lease.item for lease in table.take(["one", "two"], "v", "n", 0.0)] == ["one"]


def test_leases_lie_in_the_store_and_a_new_process_begins_again(tmp_path: Path) -> None:
    store = Store(tmp_path / "run.sqlite")
    store.leases.offer(["one", "two"])
    first, second = store.leases.take(["one", "two"], "w", "n", 0.0)
    store.leases.finish(first)
    store.close()
    again = Store(tmp_path / "run.sqlite")
    again.leases.begin_again()
    (lease,) = again.leases.take(["one", "two"], "w", "n", 0.0)
    assert (lease.item, lease.attempt) == (second.item, 2)
    again.close()
    with sqlite3.connect(tmp_path / "run.sqlite") as base:
        assert base.execute("SELECT COUNT(*) FROM leases").fetchone() == (3,)


def test_a_database_that_cannot_be_written_is_a_fault_of_the_store(tmp_path: Path) -> None:
    store = Store(tmp_path / "run.sqlite")
    store.leases.base.execute("PRAGMA query_only = ON")
    with pytest.raises(StoreFault, match="cannot be written"):
        store.leases.offer(["one"])
    store.close()

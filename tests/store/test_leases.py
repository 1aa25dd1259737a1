"""The lease table under schedules that nobody would write: every item settles once, and no result is lost."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule

from gemm_tuner.store.leases import HOLD_S, Item, Lease, Leases
from gemm_tuner.store.store import Store, StoreFault

NODES = {"a": ("sm_90",), "b": ("sm_90",), "c": ("gfx942",), "d": ("sm_90", "gfx942")}
WORKERS = [f"{node}{number}" for node in NODES for number in (0, 1)]


class Schedules(RuleBasedStateMachine):
    """A model beside the table: what each lease was, and what has come of the items."""

    held = Bundle("held")

    def __init__(self) -> None:
        super().__init__()
        self.table, self.now_s = Leases.in_memory(), 0.0
        self.needs: dict[str, str] = {}
        self.settled: dict[str, Lease] = {}
        self.until: dict[Lease, float] = {}  # of leases that are held

    @rule(needs=st.sampled_from(["sm_90", "gfx942"]), cost=st.integers(0, 3), again=st.booleans())
    def offer(self, needs: str, cost: int, again: bool) -> None:
        name = f"item{len(self.needs) - again}"
        self.needs.setdefault(name, needs)
        self.table.offer([Item(name, needs, cost)])

    @rule(worker=st.sampled_from(WORKERS), count=st.integers(1, 3), target=held)
    def take(self, worker: str, count: int) -> object:
        taken = self.table.take(worker, worker[0], NODES[worker[0]], self.now_s, count)
        busy = {lease.item for lease in self.until}
        free = [n for n, need in self.needs.items() if n not in busy | set(self.settled) and need in NODES[worker[0]]]
        assert len(taken) == min(count, len(free))
        for lease in taken:
            assert lease.item in free
            self.until[lease] = self.now_s + HOLD_S
        return multiple(*taken)

    @rule(worker=st.sampled_from(WORKERS))
    def beat(self, worker: str) -> None:
        self.table.beat(worker, self.now_s)
        for lease in self.until:
            if lease.worker == worker:
                self.until[lease] = self.now_s + HOLD_S

    @rule(seconds=st.floats(0, 40))
    def time_goes_on(self, seconds: float) -> None:
        self.now_s += seconds
        late = {lease for lease, until in self.until.items() if until < self.now_s}
        assert set(self.table.expire(self.now_s)) == late
        self._forget(late)

    @rule(worker=st.sampled_from(WORKERS), whole_node=st.booleans())
    def dies(self, worker: str, whole_node: bool) -> None:
        gone = {one for one in self.until if one.worker == worker or (whole_node and one.node == worker[0])}
        lost = self.table.lose_node(worker[0]) if whole_node else self.table.lose(worker)
        assert set(lost) == gone
        self._forget(gone)

    @rule(lease=consumes(held))
    def result_comes(self, lease: Lease) -> None:
        """In time or late, from a lease that is held or was lost."""
        first = self.table.settle(lease)
        assert first == (lease.item not in self.settled)
        assert not self.table.settle(lease)
        if first:
            self.settled[lease.item] = lease
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
        assert counts.get("settled", 0) == len(self.settled)
        assert counts.get("leased", 0) == len(self.until)
        assert sum(counts.values()) == len(self.needs)

    def teardown(self) -> None:
        """A worker that lives settles all that is left."""
        while left := self.table.take("d0", "d", NODES["d"], self.now_s, 100):
            assert all(self.table.settle_all(left))
        self.table.expire(self.now_s + 2 * HOLD_S)
        rest = self.table.take("d0", "d", NODES["d"], self.now_s, 1000)
        assert all(self.table.settle_all(rest))
        assert self.table.counts() == ({"settled": len(self.needs)} if self.needs else {})


TestSchedules = Schedules.TestCase
TestSchedules.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)


def test_a_machine_that_dies_twice_counts_once() -> None:
    table = Leases.in_memory()
    table.offer([Item("one")])
    for node in ("a", "a", "b"):
        table.take("worker", node, [""], 0.0)
        table.lose("worker")
    assert table.times_lost("one") == 2


def test_the_dearest_item_goes_first_and_named_ones_by_name() -> None:
    table = Leases.in_memory()
    table.offer([Item("cheap", cost_s=1), Item("dear", cost_s=9), Item("middle", cost_s=5)])
    assert [lease.item for lease in table.take_these(["middle", "unknown"], "w", "n", 0.0)] == ["middle"]
    assert [lease.item for lease in table.take("w", "n", [""], 0.0, 5)] == ["dear", "cheap"]
    assert table.take_these(["dear"], "v", "n", 0.0) == []


def test_leases_lie_in_the_store_and_a_new_process_begins_again(tmp_path: Path) -> None:
    store = Store(tmp_path / "run.sqlite")
    store.leases.offer([Item("one"), Item("two")])
    first, second = store.leases.take("w", "n", [""], 0.0, 2)
    store.leases.settle(first)
    store.close()
    again = Store(tmp_path / "run.sqlite")
    again.leases.begin_again()
    (lease,) = again.leases.take("w", "n", [""], 0.0, 2)
    assert (lease.item, lease.attempt) == (second.item, 2)
    again.close()
    with sqlite3.connect(tmp_path / "run.sqlite") as base:
        assert base.execute("SELECT COUNT(*) FROM leases").fetchone() == (3,)


def test_a_database_that_cannot_be_written_is_a_fault_of_the_store(tmp_path: Path) -> None:
    store = Store(tmp_path / "run.sqlite")
    store.leases.base.execute("PRAGMA query_only = ON")
    with pytest.raises(StoreFault, match="cannot be written"):
        store.leases.offer([Item("one")])
    store.close()

"""A run's store: what is put in comes out after a reopening, and a process killed right after a write loses nothing."""

from __future__ import annotations

import math
import signal
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from samples import ROOT, problem

from gemm_tuner.core.errors import EnvironmentFault
from gemm_tuner.core.records import CompileResult, Status, Timing, Verdict
from gemm_tuner.launch.plan import FINALS, SCREEN
from gemm_tuner.store.store import Store

ONE, TWO = problem(512, 512, 512), problem(64, 64, 64)


def reopened(store: Store) -> Store:
    store.close()
    return Store(store.path)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "run.sqlite")


def test_facts_are_values(store: Store) -> None:
    store.set_fact("state", {"a": [1, 2.5, None]})
    store.set_fact("state", {"b": "ü"})
    store = reopened(store)
    assert store.fact("state") == {"b": "ü"}
    assert store.fact("never") is None and store.fact("never", 3) == 3


def test_compiles_come_back_whole(store: Store) -> None:
    keys = [("0123456789ab", "k", special) for special in ("d", "x")]
    results = {
        keys[0]: CompileResult("k", "d", Status.OK, 1.5, 90, 8, 4096, "ab" * 32, True, entries=("A", "B")),
        keys[1]: CompileResult("k", "x", Status.COMPILE_TIMEOUT, message="not compiled within 60 s"),
    }
    store.add_compiles(results)
    assert reopened(store).compiles() == results


def test_a_compile_is_good_for_the_cache_it_went_to_and_a_failure_for_all(store: Store) -> None:
    keys = [("0123456789ab", name, "d") for name in ("old", "bad", "new")]
    old, bad, new = (CompileResult(key[1], "d", Status.COMPILE_ERROR if key[1] == "bad" else Status.OK) for key in keys)
    store.add_compiles({keys[0]: old, keys[1]: bad}, "one")
    store.add_compiles({keys[2]: new}, "two")
    assert store.compiles("one") == {keys[0]: old, keys[1]: bad}
    assert store.compiles("two") == {keys[1]: bad, keys[2]: new}
    assert len(store.compiles()) == 3


def test_timings_come_back_in_their_order_by_size_and_stage(store: Store) -> None:
    first = [Timing(ONE, "b", Status.OK, (1.25, 0.1)), Timing(ONE, "a", Status.CRASHED, message="signal SIGSEGV")]
    more = Timing(ONE, "b", Status.EARLY_STOPPED, (9.0,))
    store.add_timings(first, SCREEN)
    store.add_timings([Timing(TWO, "b", Status.OK, (3.0,))], SCREEN)
    store.add_timings([Timing(ONE, "b", Status.OK, (2.0,))], FINALS)
    store.add_timings([more], SCREEN)
    store = reopened(store)
    assert store.timings(ONE, SCREEN) == [*first, more]
    assert [t.samples_us for t in store.timings(ONE, FINALS)] == [(2.0,)]
    assert [t.problem for t in store.timings(TWO, SCREEN)] == [TWO]


def test_finals_and_their_verdicts_go_together(store: Store) -> None:
    for size in (ONE, TWO):
        store.add_timings([Timing(size, "a", Status.OK, (1.0,))], SCREEN)
        store.add_timings([Timing(size, "a", Status.OK, (1.0,))], FINALS)
        store.add_verdict(size, Verdict(size, "a", True, 0.1, 0.5, (3, 4)))
        store.add_failure(size, "b", Status.WRONG, "off")
    store.drop_process(ONE, FINALS, 0)
    store.drop_checks(ONE)
    store = reopened(store)
    assert (store.timings(ONE, FINALS), store.verdicts(ONE, "a"), store.failures(ONE)) == ([], [], [])
    assert len(store.timings(ONE, SCREEN)) == 1
    assert store.verdicts(TWO, "a") == [Verdict(TWO, "a", True, 0.1, 0.5, (3, 4))]
    assert store.failures(TWO) == [("b", Status.WRONG, "off")]


def test_what_ran_at_a_death_is_counted(store: Store) -> None:
    store.add_begun([(ONE.key, "a"), (ONE.key, "b")])
    store.add_begun([(ONE.key, "a"), (TWO.key, "a")])
    store = reopened(store)
    assert store.begun(ONE) == {"a": 2, "b": 1} and store.begun(TWO) == {"a": 1}


def test_a_size_is_finished_with_a_name_or_a_reason(store: Store) -> None:
    assert store.finished(ONE) is None
    store.record_outcome(ONE, "", "nothing has a time")
    store.record_outcome(TWO, "a")
    store = reopened(store)
    assert store.finished(ONE) == ("", "nothing has a time") and store.finished(TWO) == ("a", "")
    store.record_outcome(ONE, "b")
    assert store.finished(ONE) == ("b", "")


def test_many_threads_write_at_once(store: Store) -> None:
    def write(name: str) -> None:
        for index in range(20):
            store.add_timings([Timing(ONE, name, Status.OK, (float(index),))], SCREEN)

    threads = [threading.Thread(target=write, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = reopened(store).timings(ONE, SCREEN)
    for name in "abcd":
        assert [t.samples_us[0] for t in found if t.name == name] == [float(index) for index in range(20)]


def test_a_process_that_is_killed_loses_nothing_that_it_had_written(tmp_path: Path) -> None:
    path = tmp_path / "run.sqlite"
    code = f"""
import os, signal
from pathlib import Path
from gemm_tuner.core.records import Status, Timing
from gemm_tuner.gemm.problem import GemmProblem
from gemm_tuner.store.store import Store
store = Store(Path({str(path)!r}))
store.add_timings([Timing(GemmProblem(512, 512, 512), "a", Status.OK, (1.0, 2.0))], "screen")
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT)
    assert done.returncode == -signal.SIGKILL
    assert Store(path).timings(ONE, SCREEN) == [Timing(ONE, "a", Status.OK, (1.0, 2.0))]


def test_what_is_no_store_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.sqlite"
    path.write_text("this is no data base, " * 100)
    with pytest.raises(EnvironmentFault, match=r"run\.sqlite: is damaged, or no run's store") as caught:
        Store(path)
    assert "--fresh" in caught.value.one_line()


def test_a_store_of_another_version_is_refused(store: Store) -> None:
    store.close()
    with sqlite3.connect(store.path) as base:
        base.execute("UPDATE facts SET value = '\"0\"' WHERE name = 'format'")
    base.close()
    with pytest.raises(EnvironmentFault, match="another version") as caught:
        Store(store.path)
    assert "--fresh" in caught.value.one_line()


def read_all(path: Path) -> None:
    store = Store(path)
    try:
        store.compiles()
        for number in range(400):
            size = problem(number + 1, 64, 64)
            store.timings(size, SCREEN), store.finished(size), store.verdicts(size, "a"), store.state_rows(size)
            store.begun(size), store.failures(size), store.checked(size)
    finally:
        store.close()


def test_a_store_whose_pages_are_spoilt_is_a_fault_of_the_machine(store: Store) -> None:
    for number in range(400):
        store.add_timings([Timing(problem(number + 1, 64, 64), "a" * 50, Status.OK, (1.0,) * 20)], SCREEN)
    store.close()
    whole = bytearray(store.path.read_bytes())
    middle = len(whole) // 2
    whole[middle : middle + 20 * 4096] = bytes(range(256)) * 320
    store.path.write_bytes(whole)
    with pytest.raises(EnvironmentFault, match="is damaged") as caught:
        read_all(store.path)
    assert "--fresh" in caught.value.one_line() and not caught.value.one_line().count("free some space")


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE timings SET samples_us = '[1.0, '",
        "UPDATE timings SET status = 'odd'",
        "UPDATE timings SET message = CAST(x'ff00fe' AS TEXT)",
        "DROP TABLE timings",
    ],
)
def test_rows_that_were_not_written_so_are_a_fault_of_the_machine(store: Store, change: str) -> None:
    store.add_timings([Timing(ONE, "a", Status.OK, (1.0,))], SCREEN)
    with sqlite3.connect(store.path) as base:
        base.execute(change)
    base.close()
    with pytest.raises(EnvironmentFault, match="is damaged"):
        store.timings(ONE, SCREEN)


def test_a_locked_store_says_that_another_process_has_it(store: Store) -> None:
    store.close()
    other = sqlite3.connect(store.path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(EnvironmentFault, match="another process") as caught:
        Store(store.path, wait_s=0.01)
    other.execute("ROLLBACK")
    here = Store(store.path, wait_s=0.01)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(EnvironmentFault, match="another process"):
        here.record_outcome(ONE, "a")
    other.close()
    here.record_outcome(ONE, "a")
    assert "free some space" not in caught.value.one_line()


def test_the_account_of_a_size_comes_back_whole(store: Store) -> None:
    rows = {"a": {"status": "wrong", "screen_us": 1.25, "registers": 90}, "b": {"message": "same code as a"}}
    store.keep_state(ONE, {"a": {"status": "ok"}})
    store.keep_state(ONE, rows)
    store = reopened(store)
    assert store.state_rows(ONE) == rows and store.state_rows(TWO) == {}


def test_a_check_is_done_at_two_sizes_or_with_a_failure(store: Store) -> None:
    """Two verdicts on one size, as a check that was killed and begun again leaves, are one."""
    for name, sizes in (("a", (ONE, TWO)), ("b", (ONE,)), ("d", (ONE, ONE))):
        for size in sizes:
            store.add_verdict(ONE, Verdict(size, name, True, 0.1, 0.5))
    store.add_failure(ONE, "c", Status.CRASHED, "it died")
    assert store.checked(ONE) == {"a", "c"} and store.checked(TWO) == set()


@pytest.mark.parametrize("error", [math.inf, math.nan])
def test_a_check_may_find_no_number(store: Store, error: float) -> None:
    """A kernel that leaves elements unwritten: its errors are no JSON to SQLite."""
    for size in (ONE, TWO):
        store.add_verdict(ONE, Verdict(size, "a", False, error, error))
    store.add_failure(ONE, "b", Status.WRONG, "off")
    assert reopened(store).checked(ONE) == {"a", "b"}


def test_a_store_that_nobody_has_any_more_is_closed(tmp_path: Path) -> None:
    """Python 3.13 warns of one that is not."""
    base = Store(tmp_path / "run.sqlite")._base
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        base.execute("SELECT 1")

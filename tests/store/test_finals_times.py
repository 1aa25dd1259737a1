"""Times of finals when a size moves to another GPU, and those of its first choosing processes."""

from __future__ import annotations

from pathlib import Path

from samples import problem

from gemm_tuner.core.records import Role, Status, Timing
from gemm_tuner.launch.plan import FINALS
from gemm_tuner.store.finals_times import FinalsTimes, Found
from gemm_tuner.store.store import Store

SIZE = problem(64, 64, 64)


def test_what_crashes_on_the_gpu_that_its_size_moved_to_is_kept_once(tmp_path: Path) -> None:
    store, found = Store(tmp_path / "run.sqlite"), Found()
    times = FinalsTimes(store)
    times.begin(SIZE, "lost")
    timings = Timing(SIZE, "dies", Status.CRASHED), Timing(SIZE, "good", Status.OK, (1.0, 2.0))
    times.enter(timings, lambda _: "left", found)
    assert sorted(timing.name for timing in store.timings(SIZE, FINALS)) == ["dies", "good"]
    assert found[SIZE].keys() == {"dies", "good"} and times.take_moved() == {SIZE}
    store.close()


def test_further_processes_and_those_that_publish_are_not_among_the_first_that_choose(tmp_path: Path) -> None:
    store = Store(tmp_path / "run.sqlite")
    times = FinalsTimes(store)
    of = {0: Role.CHOOSE, 1: Role.PUBLISH, 2: Role.CHOOSE, 7: Role.CHOOSE}
    for process, role in reversed(of.items()):
        kept = (Timing(SIZE, name, Status.OK, (1.0,), process=process) for name in ("one", "two"))
        times.enter_again(kept, role)
    assert sorted((timing.process, timing.name) for timing in times.first_choosing(SIZE, 2)) == [
        (0, "one"), (0, "two"), (2, "one"), (2, "two"),
    ]  # fmt: skip
    store.close()


def test_crashes_may_be_entered_while_another_process_looks_at_those_so_far(tmp_path: Path) -> None:
    store = Store(tmp_path / "run.sqlite")
    times = FinalsTimes(store)
    times.begin(SIZE, "gpu")
    first, second = (Timing(SIZE, name, Status.CRASHED) for name in ("first", "second"))
    times.enter([first], lambda _: "gpu", {})
    looked_at = iter(times.crashes.items())
    times.enter([second], lambda _: "gpu", {})
    assert [timing.name for _, timing in looked_at] == ["first"]
    assert [timing.name for timing in times.crashes.values()] == ["first", "second"]
    store.close()

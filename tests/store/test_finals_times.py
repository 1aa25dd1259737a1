"""Times of finals when a size moves to another GPU."""

from __future__ import annotations

from pathlib import Path

from samples import problem

from gemm_tuner.core.records import Status, Timing
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

"""Calls of several kernels on a stand-in GPU: beside their span a row has the sum of the kernels' times."""

from __future__ import annotations

from pathlib import Path

import pytest
from samples import config, problem
from tuning import StandInGpu, session, state_of

from gemm_tuner.core.records import Role, Status, Timing
from gemm_tuner.decide.sheet import sheet_of, summed_us
from gemm_tuner.launch.plan import VENDOR
from gemm_tuner.pipeline.tune import Tuning
from gemm_tuner.store import results

SIZE = problem(512, 512, 512)
SPLIT, PLAIN = config(SPLIT_K=4), config()
TIMES = {SPLIT.name: 50.0, PLAIN.name: 60.0}


@pytest.mark.parametrize(
    ("kernels", "ours", "vendors"),
    [({SPLIT.name: (45.0, 7.5), VENDOR: (80.0, 11.0)}, 52.5, 91.0), ({PLAIN.name: (50.0, 12.0)}, None, None)],
)
def test_a_row_has_the_sum_of_its_call_and_of_the_vendors(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kernels: dict[str, tuple[float, ...]],
    ours: float | None,
    vendors: float | None,
) -> None:
    monkeypatch.chdir(tmp_path)
    run = session(tmp_path, SIZE, search="full", compile_stage=False)
    Tuning(run, [state_of(SIZE, (SPLIT, PLAIN))], (StandInGpu(us=TIMES, kernels=kernels),)).run()
    (row,) = results.read(run.results.path).rows
    assert row.config == SPLIT and row.facts["median_us"] == pytest.approx(50.0)
    assert (row.facts.get("summed_us"), row.facts.get("vendor_summed_us")) == (ours, vendors)


def test_the_sum_is_that_of_the_processes_that_publish() -> None:
    def timed(process: int, role: Role, *kernels_us: float) -> Timing:
        return Timing(SIZE, "a", Status.OK, (10.0,), "", process, role, kernels_us)

    chose = [timed(number, Role.CHOOSE, 1.0, 1.0) for number in range(3)]
    published = [timed(3, Role.PUBLISH, 8.0, 3.0), timed(4, Role.PUBLISH, 8.0, 4.0)]
    assert summed_us([*chose, *published], "a") == pytest.approx((11.0 * 12.0) ** 0.5)  # as its time
    assert summed_us([*chose, *published], "a", {0, 1, 2}) == pytest.approx(2.0)
    assert summed_us(chose[:1], "a") == 2.0 and summed_us(published, "b") is None


def test_the_sum_is_there_where_the_processes_that_were_to_publish_have_no_times() -> None:
    """The row's time is then that of the others."""
    chose = Timing(SIZE, "a", Status.OK, (10.0,), "", 0, Role.CHOOSE, (8.0, 3.0))
    lost = Timing(SIZE, "a", Status.MISSING_IN_TRACE, (), "no trace", 1, Role.PUBLISH)
    assert sheet_of([chose, lost]).samples_us["a"] == (10.0,)
    assert summed_us([chose, lost], "a") == pytest.approx(11.0)

"""Rows of sizes whose choice the publishing processes contradict, on a stand-in GPU."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tuned_runs import ONE, TIMES, A, B, C, D, Run
from tuning import StandInGpu

from gemm_tuner.core.records import Timing
from gemm_tuner.launch.plan import FINALS, VENDOR, Plan, Work
from gemm_tuner.measure.parse_run import Key
from gemm_tuner.pipeline import run_end

pytestmark = pytest.mark.usefixtures("in_a_folder")

# Of processes of finals that choose, and of those that publish.
CHOSE = {**TIMES, A: 50.0, B: 51.0, C: 53.0}
PUBLISHED = {**TIMES, A: 56.0, B: 49.0, C: 52.0}  # C before A as published
ALL = (50.0**3 * 56.0**2) ** 0.2, (90.0**3 * 80.0**2) ** 0.2  # of A and of torch.mm: the geometric means
ALIKE = {name: (CHOSE[name] ** 3 * PUBLISHED[name] ** 2) ** 0.2 for name in (A, B, C, D)}


@dataclass
class Contradicts(StandInGpu):
    us: dict[str, float] = field(default_factory=lambda: CHOSE)

    def _time(self, plan: Plan, work: Work) -> dict[Key, Timing]:
        publishes = plan.stage == FINALS and plan.process in (1, 3)
        us, vendor_us = (PUBLISHED, 80.0) if publishes else (CHOSE, 90.0)
        kernels = {name: (us_of, 0.0) for name, us_of in {**us, VENDOR: vendor_us}.items()}
        return StandInGpu(us, vendor_us=vendor_us, kernels=kernels, plans=self.plans)._time(plan, work)


@pytest.mark.parametrize(
    ("wrong", "name", "us", "vendor_us", "runner_up"),
    [
        ((), B, 51.0, 90.0, A),
        ((A,), B, 51.0, 90.0, A),  # A was not checked
        ((B,), A, *ALL, C),
        ((A, B), C, 52.0, 80.0, D),
    ],
)
def test_the_row_is_of_processes_that_had_not_chosen_it(
    wrong: tuple[str, ...], name: str, us: float, vendor_us: float, runner_up: str, tmp_path: Path
) -> None:
    """Its torch.mm and the sums of its kernels are of the same processes; also in a run that goes on."""
    run = Run(tmp_path, Contradicts(wrong=frozenset(wrong)), finalists=4)
    first = run.run()
    again = run.again(StandInGpu())
    for done, states in ((first, run.states), (again.run(), again.states)):
        choice = done.results.choices[ONE]
        assert (choice.config.name, choice.median_us, choice.vendor_us) == (
            name, pytest.approx(us), pytest.approx(vendor_us),
        )  # fmt: skip
        assert (choice.summed_us, choice.vendor_summed_us) == (pytest.approx(us), pytest.approx(vendor_us))
        assert choice.runner_up == runner_up
        assert choice.gap_pct == pytest.approx((ALIKE[runner_up] / ALIKE[name] - 1) * 100)
        finals = {one.name: one.us for one in run_end.size_record(done, states[0]).finals}
        assert (finals[name], finals[VENDOR]) == (pytest.approx(us), pytest.approx(vendor_us))
        assert (finals[A], finals[B]) == (pytest.approx(ALL[0]), pytest.approx(CHOSE[B]))
        assert states[0].rows[name]["finals_us"] == pytest.approx(us, abs=0.001)
        assert (A in dict(choice.overruled)) == (name != A)

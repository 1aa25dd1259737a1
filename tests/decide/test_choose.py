"""From times and verdicts to a choice."""

from __future__ import annotations

import pytest
from samples import config, device, problem

from gemm_tuner.core.records import Status, Timing, Verdict, Verified
from gemm_tuner.decide.choose import Ranked, measured_choice, predicted_choice, rank_screened, without
from gemm_tuner.decide.ranking import Published
from gemm_tuner.gemm.model import roofline_us
from gemm_tuner.launch.plan import VENDOR

SIZE, OTHER = problem(512, 512, 512), problem(1024, 1024, 1024)
H200 = device("sm_90")
RIGHT = (Verdict(SIZE, "b", True, 0.25, 0.5), Verdict(problem(513, 511, 509), "b", True, 0.125, 0.75))


def timing(name: str, *samples_us: float, status: Status = Status.OK, size: object = SIZE) -> Timing:
    return Timing(size, name, status, samples_us)  # type: ignore[arg-type]


def ranked(*timings: Timing) -> Ranked:
    return rank_screened(SIZE, timings)


def test_ranks_by_median_and_not_by_the_luckiest_sample() -> None:
    found = ranked(timing("lucky", 1.0, 9.0, 9.0), timing("steady", 5.0, 5.0, 5.0), timing("slow", 8.0, 30.0, 30.0))
    assert found.order == ("steady", "lucky", "slow")
    assert found.times["lucky"].us == 9.0


def test_only_whole_timings_of_the_size_count_and_the_vendor_stands_apart() -> None:
    found = ranked(
        timing("good", 5.0),
        timing("stopped", 1.0, status=Status.EARLY_STOPPED),
        timing("missing", status=Status.MISSING_IN_TRACE),
        timing("unstable", 1.0, status=Status.UNSTABLE),
        timing("no_samples"),
        timing("elsewhere", 1.0, size=OTHER),
        timing(VENDOR, 2.0, 3.0, 4.0),
    )
    assert found.order == ("good",)
    assert found.vendor is not None
    assert found.vendor.us == 3.0
    assert ranked(timing(VENDOR, status=Status.MISSING_IN_TRACE)).vendor is None
    assert ranked().order == ()


def test_a_measured_choice() -> None:
    found = ranked(
        timing("a", 10.0, 11.0, 12.0, 13.0, 14.0), timing("b", 20.0, 20.0, 21.0, 22.0, 22.0), timing(VENDOR, 6.0)
    )
    choice = measured_choice(found, "a", config(), RIGHT, H200, "measured")
    assert (choice.problem, choice.config, choice.source) == (SIZE, config(), "measured")
    assert choice.verified is Verified.TRUE
    assert (choice.median_us, choice.p20_us, choice.p80_us, choice.num_samples) == (12.0, 10.8, 13.2, 5)
    assert (choice.vendor_us, choice.vendor_ratio) == (6.0, 0.5)
    assert (choice.max_abs_error, choice.error_over_bound) == (0.25, 0.75)
    assert (choice.runner_up, choice.tie) == ("b", False)
    assert choice.gap_pct == pytest.approx(75.0)
    assert choice.roofline_pct == pytest.approx(roofline_us(SIZE, H200) / 12.0 * 100)
    assert choice.tflops == pytest.approx(2 * 512**3 / 12e-6 / 1e12)


def test_a_tie_is_with_any_other_that_is_not_known_to_be_wrong() -> None:
    found = ranked(timing("a", 10.0, 12.0, 20.0), timing("b", 12.5), timing("c", 12.6))
    for ties, tie in (({"a", "b"}, True), ({"a", "c"}, True), ({"a"}, False), ({"b", "c"}, False)):
        assert measured_choice(found, "a", config(), RIGHT, H200, "measured", ties).tie == tie
    assert not measured_choice(without(found, ["b"]), "a", config(), RIGHT, H200, "measured", {"a", "b"}).tie
    assert not measured_choice(found, "a", config(), RIGHT, H200, "measured").tie


def test_a_simpler_one_that_ties_says_how_much_faster_the_runner_up_is() -> None:
    found = ranked(timing("fastest", 10.0), timing("simpler", 10.02), timing("next", 11.0))
    choice = measured_choice(found, "simpler", config(), RIGHT, H200, "measured", {"fastest", "simpler"})
    assert (choice.runner_up, choice.tie) == ("fastest", True)
    assert choice.gap_pct == pytest.approx(-0.2, abs=0.01)


def test_one_that_is_known_to_be_wrong_is_no_runner_up() -> None:
    found = without(ranked(timing("wrong", 1.0), timing("chosen", 2.0), timing("next", 3.0)), ["wrong"])
    choice = measured_choice(found, "chosen", config(), RIGHT, H200, "measured")
    assert (choice.runner_up, choice.gap_pct) == ("next", pytest.approx(50.0))


def test_the_only_right_one_has_no_runner_up_and_no_vendor() -> None:
    for found in (ranked(timing("a", 2.0)), without(ranked(timing("wrong", 1.0), timing("a", 2.0)), ["wrong"])):
        choice = measured_choice(found, "a", config(), RIGHT, H200, "replayed")
        assert (choice.runner_up, choice.gap_pct, choice.tie, choice.source) == ("", None, False, "replayed")
        assert (choice.vendor_us, choice.vendor_ratio) == (None, None)


def test_a_predicted_choice_has_no_measured_field() -> None:
    kept = {name: config(num_stages=stages) for name, stages in (("wrong", 2), ("a", 3), ("b", 4))}
    predicted_us = {"b": 8.0, "a": 4.0, "wrong": 2.0}
    choice = predicted_choice(SIZE, "a", kept, predicted_us, RIGHT, H200)
    assert (choice.config, choice.source, choice.median_us) == (kept["a"], "predicted", 4.0)
    assert (choice.p20_us, choice.p80_us, choice.num_samples, choice.vendor_us) == (None, None, 0, None)
    assert (choice.runner_up, choice.gap_pct, choice.tie) == ("b", pytest.approx(100.0), False)
    assert predicted_choice(SIZE, "b", kept, predicted_us, RIGHT, H200).runner_up == ""


def test_figures_are_those_that_are_published_and_say_how_far_processes_lay_apart() -> None:
    times = {
        "a": Published(10.0, (9.0, 10.0, 11.0), 5, 3.5),
        "b": Published(9.9, (9.9,), 5, 0.1),
        VENDOR: Published(12.0, (1.0,), 5, 0.2),
    }
    choice = measured_choice(Ranked(SIZE, ("a", "b"), times), "a", config(), RIGHT, H200, "measured", {"a", "b"})
    assert (choice.median_us, choice.vendor_us, choice.num_samples) == (10.0, 12.0, 3)
    assert (choice.processes, choice.process_spread_pct) == (5, 3.5)
    assert (choice.runner_up, choice.gap_pct) == ("b", pytest.approx(-1.0))

"""What a budget leaves time for: an injected clock, and costs as starts have measured them."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from announced_floor import Floor, announced_floor

from gemm_tuner.measure.budget import (
    CHECK_GUESS,
    COMPILE_GUESS,
    FIRST_GUESS,
    LATE_CHECK_S,
    Budget,
    Cost,
    Costs,
    Pace,
)


@dataclass
class Clock:
    now_s: float = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


def pace(clock: Clock, total_s: float, costs: Costs | None = None, profiler: str = "nsys", **how: bool) -> Pace:
    return Pace(
        Budget(total_s, clock.now_s, clock), costs or Costs(), profiler, "2023.4, H200", **{"measured": True, **how}
    )


def test_a_budget_counts_from_its_beginning_and_not_while_another_holds_the_gpu(clock: Clock) -> None:
    budget = Budget(30.0, clock.now_s - 5, clock)
    assert budget.left_s() == 25.0 and budget.has_time_for(25.0) and not budget.has_time_for(25.1)
    clock.now_s += 40
    assert budget.left_s() == -15.0
    budget.waited_s = 40.0
    assert budget.left_s() == 25.0 and budget.until(10.0) == clock.now_s + 15.0


def test_a_deadline_is_told_in_the_time_that_other_processes_know(clock: Clock) -> None:
    budget = Budget(1000.0, clock.now_s, clock)
    assert 900 < budget.unix_time(budget.until()) - time.time() <= 1000
    assert Budget(0.0, clock.now_s, clock).unix_time(float("inf")) == 0.0


def test_without_a_budget_there_is_always_time(clock: Clock) -> None:
    one = pace(clock, 0.0)
    assert one.has_time_to_screen(10**6) and one.budget.has_time_for(1e9) and one.lengthened(20) == ""
    assert one.budget.unix_time(one.screen_deadline_until(20)) == 0.0


def test_costs_are_guessed_measured_and_kept(tmp_path: Path, clock: Clock) -> None:
    path = tmp_path / "costs.json"
    one = pace(clock, 60.0, Costs(path), "ncu")
    assert one.start() == FIRST_GUESS["ncu"] and one.check() == CHECK_GUESS
    one.count_start(100, 24.0)
    one.count_check(4, 10.0)
    later = pace(clock, 60.0, Costs(path), "ncu")
    assert later.start().of(100) == pytest.approx(24.0) and later.check().of(4) == pytest.approx(10.0)
    assert pace(clock, 60.0, Costs(path), "nsys").start() == FIRST_GUESS["nsys"]  # another profiler is another cost


@pytest.mark.parametrize(("total_s", "late_s"), [(5.0, 0.0), (10.0, 0.0), (15.0, 1.0), (30.0, 3.0), (600.0, 60.0)])
def test_a_late_check_ends_within_a_fifth_of_the_budget(total_s: float, late_s: float, clock: Clock) -> None:
    """From 10 s on: it has LATE_CHECK_S to end."""
    assert pace(clock, total_s).check_deadline() - time.time() - total_s == pytest.approx(late_s, abs=0.1)
    assert late_s + LATE_CHECK_S <= 0.2 * max(10.0, total_s)


def test_what_each_call_takes_is_learnt_from_starts_that_differ() -> None:
    costs = Costs()
    for calls in (100, 1000, 2000):
        costs.add("ncu", calls, 12.0 + 0.01 * calls)
    found = costs.cost("ncu", Cost(1.0, 1.0))
    assert (found.start_s, found.each_s) == (pytest.approx(12.0), pytest.approx(0.01))


def test_a_start_is_never_free(clock: Clock) -> None:
    """However fast it was beside what the guess says of its calls."""
    costs = Costs()
    costs.add("ncu", 1000, 8.0)
    found = costs.cost("ncu", FIRST_GUESS["ncu"])
    assert found.start_s > 0 and found.of(1000) == pytest.approx(8.0)


def test_costs_that_cannot_be_kept_are_known_to_this_run(tmp_path: Path) -> None:
    costs = Costs(tmp_path / "absent" / "costs.json")
    costs.add("nsys", 0, 9.0)
    assert costs.cost("nsys", Cost(7.0, 0.0)).start_s == 9.0


@pytest.mark.parametrize("text", ["", "[1]", '{"a": 3}', '{"a": [[1]]}', "\x00"])
def test_costs_that_cannot_be_read_are_none(text: str, tmp_path: Path) -> None:
    (tmp_path / "costs.json").write_text(text)
    assert Costs(tmp_path / "costs.json").cost("nsys", Cost(7.0, 0.0)) == Cost(7.0, 0.0)


def test_a_budget_below_the_floor_is_lengthened_to_it_and_says_so(clock: Clock) -> None:
    costs = Costs()
    costs.add("nsys 2023.4, H200", 0, 9.0)
    costs.add("check 2023.4, H200", 0, 5.0)
    one = pace(clock, 10.0, costs)
    clock.now_s += 4.0  # what looking for the GPU took
    text = one.lengthened(1)
    floor_s = COMPILE_GUESS.of(1) + 9.0 + one.check().of(1)
    assert one.budget.left_s() == pytest.approx(floor_s) and one.budget.total_s == pytest.approx(4.0 + floor_s)
    assert "10 s is too short" in text and "measured on this machine" in text
    assert announced_floor(text) == Floor(round(4.0 + floor_s), 9.0)
    assert one.lengthened(1) == ""  # now it is enough
    assert "a first guess" in pace(clock, 10.0).lengthened(1)


def test_without_a_gpu_there_is_no_floor(clock: Clock) -> None:
    one = pace(clock, 1.0, measured=False)
    assert one.lengthened(5) == "" and one.budget.total_s == 1.0


@pytest.mark.parametrize(("total_s", "screens"), [(20.0, False), (31.0, False), (37.0, True), (600.0, True)])
def test_screening_leaves_time_for_finals_and_checks(total_s: float, screens: bool, clock: Clock) -> None:
    """A start of 11 s each for screening and finals, compiles of 4.3 s and a check of 6.5 s of one size."""
    one = pace(clock, total_s)
    assert one.has_time_to_screen(1) == screens
    if screens:
        assert one.screen_until(1) + one.floor_s(1) <= one.budget.until()
        assert clock.now_s < one.screen_deadline_until(1) < one.screen_until(1)

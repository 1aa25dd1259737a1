"""What is published of a size whose choice the publishing processes contradict."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from statistics import fmean

import numpy as np
import pytest
from simulated_finals import CONFIGS, DRIFT, NAMES, SIZE, Machine

from gemm_tuner.core.records import Role, Status, Timing
from gemm_tuner.decide.contradicted import Contradicted
from gemm_tuner.decide.estimates import Spread
from gemm_tuner.decide.ranking import Judge, judge_of
from gemm_tuner.decide.sheet import sheet_of
from gemm_tuner.launch.plan import AA_TEST, VENDOR

A, B, C, D = NAMES[:4]
CHOOSE, PUBLISH = Role.CHOOSE, Role.PUBLISH
CHOSE, PUBLISHED = {0, 1, 2}, {3, 4}


def process(number: int, role: Role, us: dict[str, float]) -> list[Timing]:
    return [Timing(SIZE, name, Status.OK, (one,) * 5, "", number, role) for name, one in us.items()]


def size(*more: Timing) -> list[Timing]:
    """A was chosen in three processes, and B is faster in the two others."""
    found = [*more]
    for number in CHOSE:
        found += process(number, CHOOSE, {A: 100.0, B: 103.0, C: 150.0, D: 155.0, VENDOR: 90.0})
    for number in PUBLISHED:
        found += process(number, PUBLISH, {A: 110.0, B: 101.0, C: 140.0, D: 135.0, VENDOR: 80.0})
    return found


def times(of: Contradicted) -> dict[str, float]:
    return {name: round(one.us, 3) for name, one in of.published(judge_of([])).items()}


def test_no_time_is_from_the_processes_that_chose_by_it() -> None:
    of_a = round((100.0**3 * 110.0**2) ** 0.2, 3)  # the geometric mean over all
    assert times(Contradicted(size(), A, B)) == {A: of_a, B: 103.0, C: 140.0, D: 135.0, VENDOR: 90.0}


def test_the_vendors_time_is_from_the_processes_of_the_row_and_the_a_a_tests_from_those_of_its_duplicate() -> None:
    of = Contradicted(size(), A, B)
    assert of.processes_of(VENDOR) == CHOSE
    for row, numbers in ((B, CHOSE), (A, CHOSE | PUBLISHED), (C, PUBLISHED)):
        assert replace(of, row=row).processes_of(VENDOR) == of.processes_of(row) == numbers
    again = [Timing(SIZE, AA_TEST, Status.OK, (1.0,) * 5, B, number) for number in CHOSE | PUBLISHED]
    assert Contradicted(size(*again), A, B).processes_of(AA_TEST) == CHOSE


def test_the_one_that_won_is_first_and_the_others_are_as_they_were_chosen() -> None:
    """By the processes that do not publish them."""
    judge, of = judge_of([]), Contradicted(size(), A, B)
    before = judge.rank_finalists(sheet_of(size()), CONFIGS)
    assert of.rank(judge, CONFIGS, before).order == (B, A, C, D)
    assert of.sheet.choosing.processes == 5


def test_a_further_process_publishes_the_one_that_won_where_it_timed_it() -> None:
    further = [one for number in (5, 6) for one in process(number, CHOOSE, {A: 99.0, C: 150.0, VENDOR: 50.0})]
    assert times(Contradicted(size(*further), A, B))[VENDOR] == 90.0
    further = [one for number in (5, 6) for one in process(number, CHOOSE, {A: 99.0, B: 103.0, VENDOR: 50.0})]
    assert times(Contradicted(size(*further), A, B))[VENDOR] < 90.0


def test_what_its_processes_lack_has_the_time_of_those_that_publish() -> None:
    timings = [one for one in size() if one.name != VENDOR or one.process in PUBLISHED]
    of = Contradicted(timings, A, B)
    assert (times(of)[VENDOR], of.processes_of(VENDOR)) == (80.0, PUBLISHED)
    some = Contradicted([one for one in size() if one.name != B or one.process != 1], A, B)
    assert some.processes_of(B) == CHOSE - {1}


def test_ties_and_comparisons_are_of_all_processes() -> None:
    """By the choosing ones alone B is clearly slower."""
    judge = Judge(difference=Spread(2e-4, 1e6), most=(1e6, 1e6))  # as of many sizes
    before, of = judge.rank_finalists(sheet_of(size()), CONFIGS), Contradicted(size(), A, B)
    assert before.ties == {A} and of.rank(judge, CONFIGS, before).ties == {A, B}
    assert of.ratios[C] == pytest.approx((150 / 103) ** 0.6 * (140 / 101) ** 0.4) and of.ratios[B] == 1
    assert replace(of, row=C).ratios[B] == pytest.approx(1 / of.ratios[C])


@pytest.mark.parametrize("shift", [0.9, 1.1])
def test_finalists_are_compared_where_both_ran(shift: float) -> None:
    """Further processes have not all of them, and may be slower or faster as a whole."""
    further = [one for number in (5, 6) for one in process(number, CHOOSE, {A: 100.0 * shift, B: 103.0 * shift})]
    assert Contradicted(size(*further), A, B).ratios[C] == Contradicted(size(), A, B).ratios[C]


@pytest.mark.parametrize("role", [CHOOSE, PUBLISH])
def test_processes_count_as_they_did_where_all_are_recorded_alike(role: Role) -> None:
    """The last one counts as the other kind."""
    of = Contradicted([one for number in range(3) for one in process(number, role, {A: 1.0, B: 1.0, C: 2.0})], A, B)
    assert (of.processes_of(B), of.processes_of(C)) == (({0, 1}, {2}) if role is CHOOSE else ({2}, {0, 1}))


def errors(effect: float, name_of: Callable[[Contradicted, tuple[str, ...]], str]) -> list[float]:
    """Published times over true ones, less 1, of a finalist of each contradicted size among 600 of eight kernels."""
    dice, found = np.random.default_rng(1), []
    for run in range(60):
        true_us = [[100.0 * (1 + abs(dice.normal(0, 0.01))) for _ in range(8)] for _ in range(10)]
        finals = [Machine(process=effect).finals(us, 10 * run + at) for at, us in enumerate(true_us)]
        judge = judge_of((sheet_of(timings), CONFIGS) for timings in finals)
        for us, timings in zip(true_us, finals, strict=True):
            sheet = sheet_of(timings)
            before = judge.rank_finalists(sheet, CONFIGS)
            better = judge.overruling(sheet, before.order[0], CONFIGS)
            if better:
                of = Contradicted(timings, before.order[0], better)
                name = name_of(of, of.rank(judge, CONFIGS, before).order)
                true = us[NAMES.index(name)] * (1 + DRIFT / 2)
                found.append(of.published(judge)[name].us / true - 1)
    assert len(found) > 15
    return found


@pytest.mark.parametrize("effect", [0.003, 0.01])
def test_published_times_are_not_too_low(effect: float) -> None:
    """Of the winner, the one chosen before and the third in order; nor too high by as much as processes differ."""
    for at in range(3):
        found = errors(effect, lambda of, order, at=at: order[at] if at != 1 else of.chosen)
        assert -effect / 5 < fmean(found) < effect

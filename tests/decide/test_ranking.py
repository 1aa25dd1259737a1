"""Who wins the finals: paired differences under drift, ties, noise, and an older choice that must be beaten clearly."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from samples import config, problem
from simulated_finals import CONFIGS, NAMES, Machine, of_size

from gemm_tuner.core.records import Role, Status, Timing
from gemm_tuner.decide import estimates
from gemm_tuner.decide.estimates import Spread
from gemm_tuner.decide.ranking import Judge, Ranking, judge_of
from gemm_tuner.decide.sheet import call_noise, fastest_of, screening_noise, sheet_of
from gemm_tuner.gemm.config import KernelConfig
from gemm_tuner.launch.plan import AA_TEST, VENDOR

SIZE = problem(512, 512, 512)
SIMPLE, COMPLEX, OTHER = config(num_stages=3), config(num_stages=4), config(num_stages=5)
KNOWN = {c.name: c for c in (SIMPLE, COMPLEX, OTHER)}
SEEDS = range(20)


def timing(name: str, samples_us: tuple[float, ...], status: Status = Status.OK, message: str = "") -> Timing:
    return Timing(SIZE, name, status, samples_us, message)


def in_processes(us: dict[str, tuple[float, ...]], rounds: int = 5, publishes: bool = True) -> list[Timing]:
    """Timings without noise of calls: each finalist's time in each choosing process; one more publishes the mean."""
    chose = [
        Timing(SIZE, name, Status.OK, (one,) * rounds, "", number)
        for name, times in us.items()
        for number, one in enumerate(times)
    ]
    means = {name: float(np.mean(times)) for name, times in us.items() if publishes}
    return chose + [Timing(SIZE, n, Status.OK, (one,) * rounds, "", 50, Role.PUBLISH) for n, one in means.items()]


def rank(timings: list[Timing], most: int = 0) -> Ranking:
    sheet = sheet_of(timings)
    return judge_of([(sheet, KNOWN)]).rank_finalists(sheet, KNOWN, most)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("processes", [1, 3])
def test_one_percent_is_told_apart_under_a_drift_of_three(seed: int, processes: int) -> None:
    timings = Machine(call=0.002).finals([101.0, 100.0], seed, processes)
    found = Judge().rank_finalists(sheet_of(timings), CONFIGS)
    assert found.order == (NAMES[1], NAMES[0])
    # What a single process is sure of, the next one may deny: a tie.
    assert found.ties == (set(NAMES[:2]) if processes == 1 else {NAMES[1]}) and found.undecided == ()


def test_without_pairing_the_drift_would_hide_it() -> None:
    """The samples overlap: it is the rounds that tell."""
    timings = {t.name: t.samples_us for t in Machine(call=0.002).finals([101.0, 100.0], 0, 1)}
    slow, fast = (timings[name] for name in NAMES[:2])
    assert min(slow) < max(fast) and np.ptp(fast) > 2 * (np.median(slow) - np.median(fast))
    cells = estimates.cells_of([timings])
    gap = Judge().gaps(cells, NAMES[1])[NAMES[0]]
    assert gap.middle_pct == pytest.approx(1.0, abs=0.2)


def test_the_simpler_of_a_tie_is_chosen_within_half_a_percent_only() -> None:
    noise = np.array([0.7, -0.4, 0.1, -0.6, 0.2])
    near = in_processes({SIMPLE.name: tuple(100.3 + noise), COMPLEX.name: tuple(100 - noise)})
    far = in_processes({SIMPLE.name: tuple(100.9 + noise), COMPLEX.name: tuple(100 - noise)})
    assert rank(near).order == (SIMPLE.name, COMPLEX.name)
    assert rank(far).order == (COMPLEX.name, SIMPLE.name)
    assert rank(near).ties == rank(far).ties == {SIMPLE.name, COMPLEX.name}


def test_what_needs_an_extra_is_chosen_only_where_it_is_ahead_of_a_tie() -> None:
    """Its class chooses warps and stages, which are 0 among its fields and would count as the fewest."""
    cute = KernelConfig("gemm_cute", 64, 64, 64, 1, 1, 0, 0)
    split = config(SPLIT_K=8, num_stages=6, num_warps=8)
    known, noise = {one.name: one for one in (cute, split)}, np.array([0.7, -0.4, 0.1, -0.6, 0.2])
    for split_us, first in ((100.3, split), (100.9, cute)):
        sheet = sheet_of(in_processes({split.name: tuple(split_us + noise), cute.name: tuple(100 - noise)}))
        ranking = judge_of([(sheet, known)]).rank_finalists(sheet, known)
        assert ranking.ties == set(known) and ranking.order[0] == first.name


def test_a_certain_difference_is_no_tie_however_small() -> None:
    found = rank(in_processes({SIMPLE.name: (100.1, 102.1, 99.1), COMPLEX.name: (100.0, 102.0, 99.0)}))
    assert found.order == (COMPLEX.name, SIMPLE.name) and found.ties == {COMPLEX.name}


def test_one_process_cannot_decide_for_all() -> None:
    """2 % faster in one process and 1 % slower in two: what one process is sure of says nothing."""
    times = {SIMPLE.name: (98.0, 101.0, 101.0), COMPLEX.name: (100.0, 100.0, 100.0)}
    assert rank(in_processes(times)).ties == set(times)
    first = [one for one in in_processes(times) if one.process == 0]
    assert rank([replace(one, samples_us=(*one.samples_us, one.samples_us[0])) for one in first]).ties == set(times)


def test_more_processes_are_wanted_only_where_they_can_be_expected_to_tell() -> None:
    decided = {SIMPLE.name: (105.0, 105.2, 104.9), COMPLEX.name: (100.0, 100.1, 100.0)}
    nearly = {SIMPLE.name: (102.5, 101.0, 100.3), COMPLEX.name: (100.0, 100.0, 100.0)}
    noisy = {SIMPLE.name: (108.0, 93.0, 101.0), COMPLEX.name: (100.0, 100.0, 100.0)}
    equal = {SIMPLE.name: (100.01, 100.0, 100.0), COMPLEX.name: (100.0, 100.01, 100.0)}
    both = (COMPLEX.name, SIMPLE.name)
    found = [rank(in_processes(one), 5).undecided for one in (decided, nearly, noisy, equal)]
    assert found == [(), both, (), ()]
    assert rank(in_processes(nearly), 3).undecided == ()


def test_processes_of_some_do_not_change_who_is_faster_among_the_others() -> None:
    """The clocks fell before the fourth process, in which the undecided ran alone."""
    times = {SIMPLE.name: (100.0, 100.1, 100.0, 105.0), COMPLEX.name: (100.1, 100.0, 100.1, 105.1)}
    found = rank(in_processes({**times, OTHER.name: (102.0, 102.1, 102.0)}))
    assert found.order[-1] == OTHER.name and OTHER.name not in found.ties


def test_those_that_failed_in_a_process_and_the_vendor_library_are_no_contenders() -> None:
    timings = [
        timing(SIMPLE.name, (2.0,) * 9),
        timing(VENDOR, (1.0,) * 9),
        timing(COMPLEX.name, (1.0,) * 9),
        replace(timing(COMPLEX.name, (), Status.CRASHED), process=1),
        timing("unknown", (1.0,) * 9),
    ]
    assert rank(timings) == Ranking((SIMPLE.name,), frozenset((SIMPLE.name,)), (), None)
    assert rank([]) == Ranking(())


def test_one_that_the_trace_of_a_process_lacks_is_judged_by_the_others() -> None:
    timings = in_processes({SIMPLE.name: (100.0, 100.1, 100.0), COMPLEX.name: (103.0, 103.1, 103.2)})
    timings = [t for t in timings if (t.name, t.process) != (SIMPLE.name, 1)]
    timings.append(replace(timing(SIMPLE.name, (), Status.MISSING_IN_TRACE), process=1))
    assert rank(timings).order == (SIMPLE.name, COMPLEX.name)


def missing(timings: list[Timing], name: str, processes: tuple[int, ...]) -> list[Timing]:
    return [
        replace(t, status=Status.MISSING_IN_TRACE, samples_us=()) if (t.name, t.process) == (name, one) else t
        for t in timings
        for one in ([t.process] if t.process in processes else [-1])
    ]


@pytest.mark.parametrize(("processes", "publishing"), [(2, (1,)), (3, (1,)), (5, (1, 3))])
def test_one_that_the_traces_of_all_publishing_processes_lack_is_out(
    processes: int, publishing: tuple[int, ...]
) -> None:
    timings = Machine(call=0.002).finals([99.0, 100.0, 102.0], 0, processes, vendor_us=90.0)
    found = {}
    for lost in (NAMES[0], VENDOR, AA_TEST):
        sheet = sheet_of(missing(timings, lost, publishing))
        judge = judge_of([(sheet, CONFIGS)])
        found[lost] = judge.rank_finalists(sheet, CONFIGS, 5).order
        published = judge.published(sheet)
        assert lost not in published and set(found[lost]) <= set(published)
        assert judge.overruling(sheet, found[lost][0], CONFIGS) in ("", *found[lost])
    assert NAMES[0] not in found[NAMES[0]] and len(found[NAMES[0]]) == 2
    assert found[VENDOR] == found[AA_TEST] and set(found[VENDOR]) == set(NAMES[:3])


def test_publishing_processes_whose_traces_lack_all_contenders_do_not_count() -> None:
    timings = Machine(call=0.002).finals([99.0, 100.0], 0, 3, vendor_us=90.0)
    for name in NAMES[:2]:
        timings = missing(timings, name, (1,))
    sheet = sheet_of(timings)
    assert sheet.all.processes == 2
    assert set(Judge().rank_finalists(sheet, CONFIGS).order) == set(NAMES[:2]) <= set(Judge().published(sheet))


def test_the_noise_is_what_a_kernel_differs_from_itself() -> None:
    one = tuple(100 + np.random.default_rng(0).random(30))
    again = timing(AA_TEST, tuple(us * 1.004 for us in one), message=SIMPLE.name)
    found = rank([timing(SIMPLE.name, one), again])
    assert found.noise_pct == pytest.approx(0.4, abs=0.01)
    assert found.order == (SIMPLE.name,)
    # A duplicate that failed leaves nothing to compare with.
    assert rank([timing(SIMPLE.name, (), Status.CRASHED), again]).noise_pct is None


@pytest.mark.parametrize("noise", [0.001, 0.01, 0.03])
def test_the_noise_of_calls_is_seen_by_the_kernel_that_runs_twice(noise: float) -> None:
    timings = Machine(call=noise, rounds=200).finals([100.0, 120.0], 3, 1)
    assert call_noise(timings) == pytest.approx(noise, rel=0.25)
    assert call_noise([t for t in timings if t.name != AA_TEST]) is None


@pytest.mark.parametrize("drift", [0.0, 0.02])
def test_the_noise_of_a_call_is_read_off_screening_too_while_clocks_drift(drift: float) -> None:
    dice = np.random.default_rng(2)
    series = [
        50.0 * (1 + 0.05 * at) * (1 - drift * np.arange(5) / 5) * np.exp(0.02 * dice.standard_normal(5))
        for at in range(40)
    ]
    timings = [Timing(SIZE, f"{at}", Status.OK, (99.0, *one[1:].tolist())) for at, one in enumerate(series)]
    assert screening_noise(timings) == pytest.approx(0.02, rel=0.25)
    assert screening_noise(timings[:3]) is None


@pytest.mark.parametrize(
    ("new_us", "least_pct", "wins"),
    [(97.0, 2.0, True), (99.0, 2.0, False), (99.0, 0.5, True), (100.0, 0.0, False), (103.0, 0.0, False)],
)
def test_an_older_choice_gives_way_to_a_clearly_faster_one_only(new_us: float, least_pct: float, wins: bool) -> None:
    sheet = sheet_of(Machine(call=0.002).finals([100.0, new_us], 3))
    assert Judge().clearly_faster(sheet, NAMES[1], NAMES[0], least_pct, CONFIGS) == wins


def test_noise_and_a_single_round_are_no_proof_against_an_older_choice() -> None:
    noisy = sheet_of(Machine(call=0.2).finals([100.0, 96.0], 1))
    assert not Judge().clearly_faster(noisy, NAMES[1], NAMES[0], 0.0, CONFIGS)
    once = sheet_of([timing(SIMPLE.name, (100.0,)), timing(COMPLEX.name, (90.0,))])
    assert not Judge().clearly_faster(once, COMPLEX.name, SIMPLE.name, 2.0, KNOWN)
    assert not Judge().clearly_faster(once, "not there", SIMPLE.name, 2.0, KNOWN)


@pytest.mark.parametrize("role", [Role.CHOOSE, Role.PUBLISH])
def test_no_samples_choose_and_publish_where_there_are_two_processes(role: Role) -> None:
    """A run that ended between two steps may have left all processes with the same role."""
    timings = [replace(t, role=role) for t in Machine().finals([100.0, 101.0], 0, 3)]
    some = [replace(t, process=3) for t in timings if t.process == 0 and t.name == NAMES[0]]
    sheet = sheet_of(timings + some)
    assert sheet.choosing.processes + sheet.publishing.processes == sheet.all.processes == 4
    assert set(NAMES[:2]) <= set(sheet.publishing.names)


def test_what_is_published_is_from_the_processes_that_publish() -> None:
    timings = [
        Timing(SIZE, SIMPLE.name, Status.OK, (us, us * 1.02, us * 0.98), "", number, role)
        for number, (us, role) in enumerate([(90.0, Role.CHOOSE), (100.0, Role.PUBLISH), (121.0, Role.PUBLISH)])
    ]
    one = judge_of([]).published(sheet_of(timings))[SIMPLE.name]
    assert one.us == pytest.approx(110.0)  # the geometric mean
    assert sorted(one.samples_us) == pytest.approx(sorted((100, 102, 98, 121, 121 * 1.02, 121 * 0.98)))
    assert (one.processes, one.spread_pct) == (3, pytest.approx((121 / 90 - 1) * 100))
    assert one.low_us is not None and one.high_us is not None and one.low_us < 110 < one.high_us


def test_a_single_process_has_a_time_and_no_interval_over_processes() -> None:
    one = judge_of([]).published(sheet_of([timing(SIMPLE.name, (3.0, 1.0, 2.0))]))[SIMPLE.name]
    assert (one.us, one.processes) == (pytest.approx(2.0), 1)
    assert (one.spread_pct, one.low_us, one.high_us) == (None, None, None)


def test_another_that_is_clearly_faster_in_the_publishing_processes_overrules() -> None:
    def finals(published: dict[str, tuple[float, float]]) -> list[Timing]:
        chose = in_processes({SIMPLE.name: (100.0, 100.1, 100.0), COMPLEX.name: (101.0, 101.1, 101.1)}, 5, False)
        after = in_processes(published, 5, False)
        return chose + [replace(one, process=3 + one.process, role=Role.PUBLISH) for one in after]

    def overruling(published: dict[str, tuple[float, float]]) -> str:
        sheet = sheet_of(finals(published))
        judge = judge_of([(sheet, KNOWN)])
        assert judge.rank_finalists(sheet, KNOWN).order[0] == SIMPLE.name
        return judge.overruling(sheet, SIMPLE.name, KNOWN)

    assert overruling({SIMPLE.name: (115.0, 115.1), COMPLEX.name: (101.0, 101.1)}) == COMPLEX.name
    assert overruling({SIMPLE.name: (100.0, 101.0), COMPLEX.name: (101.0, 100.5)}) == ""
    # By no more than the simplest may be slower where it is chosen for that.
    assert overruling({SIMPLE.name: (100.0, 100.0), COMPLEX.name: (99.6, 99.6)}) == ""
    assert overruling({SIMPLE.name: (100.0, 100.0), COMPLEX.name: (99.2, 99.2)}) == COMPLEX.name


def test_none_overrules_that_is_clearly_slower_over_all_processes() -> None:
    def overruling(before: float) -> str:
        """Where the first three took so long of the other, whose last two were clearly faster."""
        chose = in_processes({SIMPLE.name: (100.0,) * 3, COMPLEX.name: (before,) * 3}, 5, False)
        after = in_processes({SIMPLE.name: (102.0,) * 2, COMPLEX.name: (100.0,) * 2}, 5, False)
        sheet = sheet_of(chose + [replace(one, process=3 + one.process, role=Role.PUBLISH) for one in after])
        judge = Judge(difference=Spread(1e-6, 1e6), most=(1e6, 1e6))  # as of many sizes without noise
        return judge.overruling(sheet, SIMPLE.name, KNOWN)

    assert [overruling(before) for before in (100.5, 105.0)] == [COMPLEX.name, ""]


def test_finalists_that_share_no_process_are_not_compared() -> None:
    """As of finals and repeated ones with others, between which a run was killed."""
    cells = estimates.cells_of([{"other": (50.0, 50.0)}, *[{"one": (100.0, 100.0), "two": (90.0, 90.0)}] * 3])
    assert cells.names[0] == "other" and fastest_of(cells) == "two"


def test_none_overrules_of_which_no_time_is_left_to_publish() -> None:
    """Because the traces of all choosing processes lack it."""
    chose = in_processes({SIMPLE.name: (100.0, 100.1, 100.0)}, 5, False)
    after = in_processes({SIMPLE.name: (110.0,) * 2, COMPLEX.name: (100.0,) * 2}, 5, False)
    sheet = sheet_of(chose + [replace(one, process=3 + one.process, role=Role.PUBLISH) for one in after])
    judge = judge_of([(sheet, KNOWN)])
    assert judge.rank_finalists(sheet, KNOWN).order[0] == SIMPLE.name
    assert judge.overruling(sheet, SIMPLE.name, KNOWN) == ""


def test_sizes_learn_the_noise_from_each_other() -> None:
    """Two finalists in three processes leave two degrees of freedom; twenty such sizes leave forty."""
    machine, us = Machine(call=0.002, process=0.004), [100.0, 102.0]
    sheets = [sheet_of(of_size(machine.finals(us, seed, 3), problem(16 * (seed + 1), 512, 512))) for seed in range(20)]
    alone = [len(judge_of([(sheet, CONFIGS)]).rank_finalists(sheet, CONFIGS).ties) == 1 for sheet in sheets]
    together = judge_of((sheet, CONFIGS) for sheet in sheets)
    assert sum(alone) < sum(len(together.rank_finalists(sheet, CONFIGS).ties) == 1 for sheet in sheets)


@pytest.mark.parametrize(
    "worse",
    [
        {"SPLIT_K": 2},
        {"WARP_SPECIALIZE": 1},
        {"num_stages": 4},
        {"num_warps": 8},
        {"EPILOGUE_SUBTILE": 2},
        {"GROUP_SIZE_M": 8},
        {"BLOCK_SIZE_N": 256},
    ],
)
def test_what_is_simpler(worse: dict[str, int]) -> None:
    assert config().simplicity < config(**worse).simplicity

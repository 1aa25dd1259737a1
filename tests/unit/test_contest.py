"""Who wins the finals: paired differences under drift, ties, noise, and an older choice that must be beaten clearly."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
from samples import config, problem

from gemm_tuner import contest
from gemm_tuner.contest import Contest, clearly_faster, difference, hold
from gemm_tuner.launcher.plan import AGAIN, VENDOR
from gemm_tuner.records import KernelConfig, Status, Timing

SIZE = problem(512, 512, 512)
SIMPLE, COMPLEX, OTHER = config(num_stages=3), config(num_stages=4), config(num_stages=5)
ROUNDS = 30
SEEDS = range(20)


def drift(seed: int, rounds: int = ROUNDS) -> npt.NDArray[np.float64]:
    """A factor a round that all contenders share: clocks that wander by 3 %."""
    return np.asarray(1 + 0.03 * np.random.default_rng(1000 + seed).random(rounds))


def samples(us: float, seed: int, *, jitter: float = 0.002, rounds: int = ROUNDS, of: int = 0) -> tuple[float, ...]:
    """Samples of a contender round by round. seed: of the drift; of: of the jitter that is its own."""
    own = 1 + jitter * np.random.default_rng([seed, of]).standard_normal(rounds)
    return tuple((us * drift(seed, rounds) * own).tolist())


def timing(name: str, samples_us: tuple[float, ...], status: Status = Status.OK, message: str = "") -> Timing:
    return Timing(SIZE, name, status, samples_us, message)


def of_configs(us: dict[KernelConfig, float], seed: int) -> Contest:
    timings = [timing(c.name, samples(one, seed, of=index)) for index, (c, one) in enumerate(us.items())]
    return hold(timings, {c.name: c for c in us})


@pytest.mark.parametrize("seed", SEEDS)
def test_one_percent_is_told_apart_under_a_drift_of_three(seed: int) -> None:
    found = of_configs({SIMPLE: 101.0, COMPLEX: 100.0}, seed)
    assert found.order == (COMPLEX.name, SIMPLE.name)
    assert found.ties == {COMPLEX.name}
    assert found.undecided == ()


def test_without_pairing_the_drift_would_hide_it() -> None:
    """The samples overlap: it is the rounds that tell."""
    one, other = samples(101.0, 0, of=0), samples(100.0, 0, of=1)
    assert min(one) < np.median(other) and max(other) > np.median(one)
    gap = difference(one, other)
    assert gap.decided and gap.low_pct < 1.0 < gap.high_pct and gap.middle_pct == pytest.approx(1.0, abs=0.2)


def test_equal_contenders_tie_and_the_simpler_is_chosen() -> None:
    tied = [of_configs({COMPLEX: 100.0, SIMPLE: 100.0}, seed) for seed in SEEDS]
    # A 95 % interval is wrong now and then.
    assert sum(one.ties == {SIMPLE.name, COMPLEX.name} for one in tied) >= 17
    assert all(one.order[0] == SIMPLE.name for one in tied if len(one.ties) == 2)


def test_the_simpler_of_a_tie_comes_first_although_its_median_is_larger() -> None:
    one = np.array([100.0, 101.0, 99.0, 100.5, 99.5, 100.0, 100.2, 99.8])
    other = one + np.array([0.1, -0.1, 0.2, -0.2, 0.1, 0.1, -0.1, 0.1])
    assert np.median(other) > np.median(one)
    found = hold(
        [timing(COMPLEX.name, tuple(one)), timing(SIMPLE.name, tuple(other))],
        {c.name: c for c in (SIMPLE, COMPLEX)},
    )
    assert found.order == (SIMPLE.name, COMPLEX.name)


def test_a_certain_difference_is_no_tie_however_small() -> None:
    one = tuple(float(100 + i % 7) for i in range(ROUNDS))
    other = tuple(us * 1.001 for us in one)
    found = hold([timing(COMPLEX.name, one), timing(SIMPLE.name, other)], {c.name: c for c in (SIMPLE, COMPLEX)})
    assert found.order == (COMPLEX.name, SIMPLE.name) and found.ties == {COMPLEX.name}


def test_what_noise_hides_and_is_larger_than_a_tie_is_undecided() -> None:
    """3 % apart by the median, in doubt: more rounds, and no tie."""
    noisy = np.random.default_rng(5).permutation(np.linspace(80, 127, ROUNDS))
    found = hold(
        [timing(SIMPLE.name, tuple(noisy)), timing(COMPLEX.name, (100.0,) * ROUNDS)],
        {c.name: c for c in (SIMPLE, COMPLEX)},
    )
    assert set(found.undecided) == {SIMPLE.name, COMPLEX.name}
    assert found.undecided[0] == COMPLEX.name == found.order[0]
    assert found.ties == {COMPLEX.name}


@pytest.mark.parametrize("rounds", [1, 4])
def test_a_few_rounds_decide_nothing(rounds: int) -> None:
    gap = difference((102.0,) * rounds, (100.0,) * rounds)
    assert not gap.decided and gap.middle_pct == pytest.approx(2.0)


def test_more_rounds_of_some_do_not_change_who_is_faster() -> None:
    """The clocks fell before the second block, where only the undecided ran: others are compared by the first."""
    fast, rival = samples(100.0, 1, of=0), samples(100.1, 1, jitter=0.02, of=1)
    slower_now = [tuple(us * 1.05 for us in samples(100.0, 2, rounds=60, of=index)) for index in (2, 3)]
    third = samples(102.0, 1, of=4)
    found = hold(
        [
            timing(SIMPLE.name, fast + slower_now[0]),
            timing(COMPLEX.name, rival + slower_now[1]),
            timing(OTHER.name, third),
        ],
        {c.name: c for c in (SIMPLE, COMPLEX, OTHER)},
    )
    assert found.order[-1] == OTHER.name
    assert OTHER.name not in found.ties


def test_those_that_failed_and_the_vendor_library_are_no_contenders() -> None:
    timings = [
        timing(SIMPLE.name, (2.0,) * 9),
        timing(VENDOR, (1.0,) * 9),
        timing(COMPLEX.name, (), Status.CRASHED),
        timing("unknown", (1.0,) * 9),
    ]
    found = hold(timings, {c.name: c for c in (SIMPLE, COMPLEX)})
    assert found == Contest((SIMPLE.name,), frozenset((SIMPLE.name,)), (), None)
    assert contest.vendor_of(timings) == timings[1]
    assert contest.vendor_of([replace(timings[1], status=Status.LAUNCH_ERROR)]) is None
    assert hold([], {}) == Contest((), frozenset(), (), None)


def test_the_noise_is_what_a_kernel_differs_from_itself() -> None:
    one = samples(100.0, 0)
    again = timing(AGAIN, tuple(us * 1.004 for us in one), message=SIMPLE.name)
    configs = {SIMPLE.name: SIMPLE}
    found = hold([timing(SIMPLE.name, one), again], configs)
    assert found.noise_pct == pytest.approx(0.4, abs=1e-6)
    assert found.order == (SIMPLE.name,)
    # A twin that failed leaves nothing to compare with.
    assert hold([timing(SIMPLE.name, (), Status.CRASHED), again], configs).noise_pct is None


@pytest.mark.parametrize(
    ("new_us", "least_pct", "wins"),
    [(97.0, 2.0, True), (99.0, 2.0, False), (99.0, 0.5, True), (100.0, 0.0, False), (103.0, 0.0, False)],
)
def test_an_older_choice_gives_way_to_a_clearly_faster_one_only(new_us: float, least_pct: float, wins: bool) -> None:
    new, old = timing("new", samples(new_us, 3, of=0)), timing("old", samples(100.0, 3, of=1))
    assert clearly_faster(new, old, least_pct) == wins


def test_noise_and_few_rounds_are_no_proof_against_an_older_choice() -> None:
    noisy = timing("new", samples(96.0, 3, jitter=0.4, of=0))
    assert np.median(noisy.samples_us) < 98 and not clearly_faster(noisy, timing("old", samples(100.0, 3, of=1)), 2.0)
    assert not clearly_faster(timing("new", (90.0,) * 4), timing("old", (100.0,) * 4), 2.0)
    assert clearly_faster(timing("new", (90.0,) * 5), timing("old", (100.0,) * 5), 2.0)


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
    assert contest.simplicity(config()) < contest.simplicity(config(**worse))


def test_the_same_samples_give_the_same_interval() -> None:
    one, other = samples(100.0, 4, of=0), samples(100.2, 4, of=1)
    assert difference(one, other) == difference(one, other)
    assert difference(one, (*other, 50.0)) == difference(one, other)  # rounds that only one has say nothing
    with pytest.raises(ValueError, match="nothing to compare"):
        difference(one, ())

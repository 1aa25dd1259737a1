"""Finals: who is faster, by how much, and what noise cannot tell apart.

Contenders run in rounds, each round all of them in another order, so that sample i of each was taken within
milliseconds of sample i of the others. What is compared is the median of the differences within rounds; its
interval is a percentile bootstrap over rounds (Efron and Tibshirani, An Introduction to the Bootstrap, chapter 13).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from gemm_tuner.launcher.plan import AGAIN, VENDOR
from gemm_tuner.records import KernelConfig, Status, Timing

RESAMPLES = 2000
INTERVAL_PCT = (2.5, 97.5)
# Contenders this near to the fastest count as equal to it when noise cannot tell them apart: a difference that
# nobody could measure, and at most this large, is not worth a more complex kernel.
TIE_PCT = 0.5
# Fewer rounds than this decide nothing.
LEAST_ROUNDS = 5


@dataclass(frozen=True, slots=True)
class Difference:
    """How much slower one contender is than another, percent of the other's median; low and high: a 95 % interval,
    infinite for fewer than LEAST_ROUNDS."""

    low_pct: float
    middle_pct: float
    high_pct: float

    @property
    def decided(self) -> bool:
        """Whether the interval leaves no doubt who is faster."""
        return self.low_pct > 0 or self.high_pct < 0


def difference(mine: Sequence[float], other: Sequence[float], seed: int = 0) -> Difference:
    """Of samples that were taken round by round, of as many rounds as both have. Raises ValueError for none."""
    pairs = paired_pct(mine, other)
    rounds, middle = len(pairs), float(np.median(pairs))
    if rounds < LEAST_ROUNDS:
        return Difference(-np.inf, middle, np.inf)
    drawn: npt.NDArray[np.int64] = np.random.default_rng(seed).integers(0, rounds, (RESAMPLES, rounds))
    low, high = np.percentile(np.median(pairs[drawn], axis=1), INTERVAL_PCT)
    return Difference(float(low), middle, float(high))


def paired_pct(mine: Sequence[float], other: Sequence[float]) -> npt.NDArray[np.float64]:
    """The differences within the rounds that both have, percent of the other's median. Raises ValueError for none."""
    rounds = min(len(mine), len(other))
    if rounds == 0:
        raise ValueError("nothing to compare")
    base = np.asarray(other[:rounds], dtype=np.float64)
    return (np.asarray(mine[:rounds]) - base) / float(np.median(base)) * 100


@dataclass(frozen=True, slots=True)
class Contest:
    """The outcome of a size's finals.

    order:     names, the one to choose first; those tied with the fastest before the others.
    ties:      names that noise cannot tell from the fastest, the fastest among them; only that when nothing ties.
    undecided: names whose place more rounds could change.
    noise_pct: how far two contenders of the same kernel lay apart, percent; None when none ran twice.
    """

    order: tuple[str, ...]
    ties: frozenset[str]
    undecided: tuple[str, ...]
    noise_pct: float | None


def simplicity(config: KernelConfig) -> tuple[int, ...]:
    """Orders equal contenders: fewer kernels and programs, fewer stages and warps, the smaller tile."""
    return (
        config.SPLIT_K,
        config.WARP_SPECIALIZE,
        config.num_stages,
        config.num_warps,
        config.EPILOGUE_SUBTILE,
        config.GROUP_SIZE_M,
        config.BLOCK_SIZE_M * config.BLOCK_SIZE_N * config.BLOCK_SIZE_K,
    )


def hold(timings: Iterable[Timing], configs: Mapping[str, KernelConfig]) -> Contest:
    """Orders the contenders that ran, the vendor library aside."""
    ran = {t.name: t for t in timings if t.status == Status.OK and t.samples_us}
    names = fastest_first({name: timing.samples_us for name, timing in ran.items() if name in configs})
    if not names:
        return Contest((), frozenset(), (), None)
    fastest = ran[names[0]].samples_us
    behind = {name: difference(ran[name].samples_us, fastest) for name in names[1:]}
    ties = {names[0]} | {name for name, gap in behind.items() if not gap.decided and abs(gap.middle_pct) <= TIE_PCT}
    undecided = [name for name, gap in behind.items() if not gap.decided and gap.high_pct - gap.low_pct > TIE_PCT]
    simplest_first = sorted(ties, key=lambda name: (simplicity(configs[name]), name))
    order = (*simplest_first, *(name for name in names if name not in ties))
    return Contest(order, frozenset(ties), (names[0], *undecided) if undecided else (), noise_pct(ran))


def fastest_first(samples_us: Mapping[str, Sequence[float]]) -> list[str]:
    """The names by how far each lies behind one that ran in all rounds: medians of different rounds say nothing."""
    if not samples_us:
        return []
    base = min(samples_us.values(), key=lambda one: (-len(one), float(np.median(one))))
    return sorted(samples_us, key=lambda name: float(np.median(paired_pct(samples_us[name], base))))


def noise_pct(ran: Mapping[str, Timing]) -> float | None:
    """Percent between the medians of the kernel that ran as two contenders."""
    if AGAIN not in ran:
        return None
    again = ran[AGAIN]
    twin = ran.get(again.message)
    if twin is None:
        return None
    return abs(difference(again.samples_us, twin.samples_us).middle_pct)


def clearly_faster(new: Timing, old: Timing, by_pct: float) -> bool:
    """Whether a contender is faster than an older choice by more than ``by_pct``, beyond noise."""
    gap = difference(old.samples_us, new.samples_us)
    return gap.low_pct > 0 and gap.middle_pct > by_pct


def vendor_of(timings: Iterable[Timing]) -> Timing | None:
    return next((t for t in timings if t.name == VENDOR and t.status == Status.OK and t.samples_us), None)


def joined(timings: Iterable[Timing]) -> list[Timing]:
    """The timings of several blocks, one a contender: samples one behind the other, in the order of the blocks.

    A contender that failed in one block only keeps the samples of the others.
    """
    found: dict[str, Timing] = {}
    for timing in timings:
        old = found.get(timing.name)
        if old is None or old.status != Status.OK:
            found[timing.name] = timing
        elif timing.status == Status.OK:
            found[timing.name] = replace(timing, samples_us=old.samples_us + timing.samples_us)
    return list(found.values())

"""Who is the fastest of a size's finalists, what noise cannot tell from it, and what is published. Pure functions.

Processes choose or publish (``Role``): the time of the winner is taken from processes whose samples did not choose it,
since the least of many noisy times flatters. ``estimates`` says how times and their spread come about.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from gemm_tuner.core.records import KernelConfig, Role, Status, Timing
from gemm_tuner.decide import estimates
from gemm_tuner.decide.estimates import NOTHING_KNOWN, Cells, Spread
from gemm_tuner.launch.plan import AA_TEST, VENDOR

# Of contenders that noise cannot tell from the fastest, a simpler one is preferred when it is at most this much slower.
TIE_PCT = 0.5
# What runs beside the contenders of a size.
BESIDE = frozenset((VENDOR, AA_TEST))


@dataclass(frozen=True, slots=True)
class Gap:
    """How much slower one contender is than another, percent. low: the least that noise allows, with the choice of
    the other among ``others`` counted; -inf when nothing is known of the noise."""

    middle_pct: float
    low_pct: float

    @property
    def is_clear(self) -> bool:
        return self.low_pct > 0


NO_GAP = Gap(0.0, float("-inf"))


@dataclass(frozen=True, slots=True)
class Ranking:
    """The outcome of a size's finals.

    order:     names, the one to choose first.
    ties:      names that noise cannot tell from the fastest, the fastest among them.
    undecided: names, the fastest among them, of which further processes can be expected to tell more.
    noise_pct: how far two contenders of the same kernel lay apart, percent; None when none ran twice.
    """

    order: tuple[str, ...]
    ties: frozenset[str] = frozenset()
    undecided: tuple[str, ...] = ()
    noise_pct: float | None = None


@dataclass(frozen=True, slots=True)
class Published:
    """The time of a contender as it is reported.

    us:          estimated over the publishing processes, or over all where none publishes.
    low_us, high_us: 95 % interval over processes; None for a single process.
    samples_us:  of those processes, one behind the other.
    processes:   in which it ran, those that chose among them.
    spread_pct:  the largest of its times in them over the least; None for a single process.
    """

    us: float
    samples_us: tuple[float, ...]
    processes: int = 1
    spread_pct: float | None = None
    low_us: float | None = None
    high_us: float | None = None


@dataclass(frozen=True)
class Sheet:
    """The finals of a size by role.

    all:        choosing and publishing processes.
    samples_us: of the publishing processes, by name.
    twin:       the name of the contender whose kernel ran as a second one; "" for none.
    """

    choosing: Cells
    publishing: Cells
    all: Cells
    samples_us: Mapping[str, tuple[float, ...]]
    twin: str = ""


@dataclass(frozen=True)
class Prior:
    """What the sizes of a run have in common: variances of differences and of levels, and all degrees of freedom."""

    difference: Spread = NOTHING_KNOWN
    level: Spread = NOTHING_KNOWN
    most: tuple[float, float] = (0.0, 0.0)


@dataclass(frozen=True)
class Judge:
    """Judges sizes that were measured in the same way."""

    prior: Prior = field(default_factory=Prior)

    def spread(self, cells: Cells) -> Spread:
        """The variance of a contender's time in one process. A single process tells nothing of it: what the calls of
        one have in common is not seen in them."""
        return estimates.moderated(estimates.difference_spread(cells), self.prior.difference, self.prior.most[0])

    def gaps(self, cells: Cells, base: str, processes: int = 0, whole: Cells | None = None) -> dict[str, Gap]:
        """How much slower each contender is than ``base``, which may have been chosen among them by its time.

        processes: as if each had been seen in so many; 0 is in those that there are. whole: the same contenders in all
        processes of the size, which tell the variance where ``cells`` are of a single one.
        """
        spread = self.spread(cells if whole is None or cells.processes > 1 else whole)
        if not spread.degrees:
            width = float("inf")
        else:
            critical = estimates.best_of_critical(len(cells.names) - 1, two_digits(spread.degrees))
            width = critical * float(np.sqrt(2 * spread.variance))
        apart = cells.log_us - cells.log_us[:, [cells.names.index(base)]]
        shared = (~np.isnan(apart)).sum(axis=0)
        middles = np.nansum(apart, axis=0) / np.maximum(shared, 1)
        found = {}
        for name, middle, count in zip(cells.names, middles.tolist(), shared.tolist(), strict=True):
            if name == base or not count:
                continue
            low = middle - width / np.sqrt(processes or count)
            found[name] = Gap(percent(middle), percent(low) if np.isfinite(low) else float("-inf"))
        return found

    def interval_pct(self, cells: Cells, name: str, base: str) -> tuple[float, float, float]:
        """How much slower one contender is than another, neither of them chosen by its time: the 95 % interval over
        processes and the estimate in its middle, percent."""
        middle = cells.of([name, base])
        apart = middle.log_us[:, 0] - middle.log_us[:, 1]
        shared = apart[~np.isnan(apart)]
        spread = self.spread(cells)
        if not len(shared) or not spread.degrees:
            return float("-inf"), percent(float(np.mean(shared))) if len(shared) else float("nan"), float("inf")
        width = np.log(estimates.interval_factor(Spread(2 * spread.variance, spread.degrees), len(shared)))
        return percent(np.mean(shared) - width), percent(np.mean(shared)), percent(np.mean(shared) + width)

    def hold(self, sheet: Sheet, configs: Mapping[str, KernelConfig], most_processes: int = 0) -> Ranking:
        """Orders the contenders of the choosing processes, the vendor library aside.

        most_processes: that may ever choose; decides what is worth further ones.
        """
        cells = contenders(sheet.choosing, configs)
        if not cells.names:
            return Ranking(())
        fastest, whole = fastest_of(cells), contenders(sheet.all, cells.names)
        gaps = self.gaps(cells, fastest, whole=whole)
        ties = {fastest} | {name for name, gap in gaps.items() if not gap.is_clear}
        near = [name for name in ties if name == fastest or gaps[name].middle_pct <= TIE_PCT]
        preferred = min(near, key=lambda name: (simplicity(configs[name]), name))
        behind = sorted(cells.names, key=lambda name: gaps[name].middle_pct if name in gaps else 0.0)
        order = (preferred, *(name for name in behind if name != preferred))
        noise = noise_pct(sheet)
        if most_processes <= cells.processes:
            return Ranking(order, frozenset(ties), (), noise)
        then = self.gaps(cells, fastest, most_processes, whole)
        undecided = sorted(name for name in ties - {fastest} if more_tell(gaps[name], then[name]))
        return Ranking(order, frozenset(ties), (fastest, *undecided) if undecided else (), noise)

    def overruling(self, sheet: Sheet, chosen: str, configs: Mapping[str, KernelConfig]) -> str:
        """The contender that was clearly faster than the chosen one in the publishing processes; "" for none."""
        cells = contenders(sheet.publishing, configs)
        if sheet.publishing.processes == sheet.all.processes or chosen not in cells.names or len(cells.names) < 2:
            return ""
        fastest = fastest_of(cells)
        gaps = self.gaps(cells, fastest, whole=contenders(sheet.all, cells.names))
        return fastest if fastest != chosen and gaps[chosen].is_clear else ""

    def clearly_faster(self, sheet: Sheet, new: str, old: str, by_pct: float, names: Iterable[str]) -> bool:
        """Whether a contender is faster than an older choice by more than ``by_pct``, beyond noise. It is not where
        nothing is known of how processes differ.

        names: of the contenders, one of which ``new`` was chosen from.
        """
        cells = contenders(sheet.choosing, names)
        if new not in cells.names or old not in cells.names:
            return False
        gap = self.gaps(cells, new, whole=contenders(sheet.all, cells.names)).get(old, NO_GAP)
        return gap.is_clear and gap.middle_pct > by_pct

    def published(self, sheet: Sheet) -> dict[str, Published]:
        """The times to report, by name."""
        own = estimates.level_spread(sheet.all)
        spread = estimates.moderated(own, self.prior.level if own.degrees else NOTHING_KNOWN, self.prior.most[1])
        return {name: _published(sheet, name, spread) for name in sheet.publishing.names}


def more_tell(gap: Gap, then: Gap) -> bool:
    """Whether an unclear contender could be faster by more than a tie, and further processes can be expected to show
    that it is slower, or that it is not faster by that much. then: its gap in as many processes as there may be."""
    return -gap.low_pct > TIE_PCT and (then.is_clear or -then.low_pct <= TIE_PCT)


def _published(sheet: Sheet, name: str, spread: Spread) -> Published:
    cells, times = sheet.publishing, sheet.all.column(name)
    us, processes = cells.us(name), len(times)
    if processes < 2 or not spread.degrees:
        return Published(us, sheet.samples_us[name], processes)
    factor = estimates.interval_factor(spread, len(cells.column(name)))
    return Published(
        us, sheet.samples_us[name], processes, percent(float(times.max() - times.min())), us / factor, us * factor
    )


def judge_of(sheets: Iterable[tuple[Sheet, Iterable[str]]]) -> Judge:
    """A judge that knows what all sizes of a run, each with the names of its contenders, tell of the noise."""
    found = [(contenders(sheet.all, names), sheet.all) for sheet, names in sheets if sheet.all.processes > 1]
    differences = [estimates.difference_spread(cells) for cells, _ in found]
    levels = [estimates.level_spread(cells) for _, cells in found]
    most = (sum(one.degrees for one in differences), sum(one.degrees for one in levels))
    return Judge(Prior(estimates.common_spread(differences), estimates.common_spread(levels), most))


def sheet_of(timings: Iterable[Timing]) -> Sheet:
    """The finals of a size from its timings, one a contender and process.

    A contender that failed in a process, or that no publishing process has a time of, is out: it could not be
    reported. A process without contenders does not count.
    """
    timings = list(timings)
    out = {t.name for t in timings if t.status not in (Status.OK, Status.MISSING_IN_TRACE)}
    sound = [t for t in timings if t.status == Status.OK and t.samples_us and t.name not in out]
    processes = {t.process for t in sound if t.name not in BESIDE}
    sound = [t for t in sound if t.process in processes]
    publishes = publishing_of(sound)
    reported = {t.name for t in sound if t.process in publishes or not publishes} | BESIDE
    by_process: dict[int, dict[str, tuple[float, ...]]] = {}
    for timing in sound:
        if timing.name in reported:
            by_process.setdefault(timing.process, {})[timing.name] = timing.samples_us
    twin = next((t.message for t in sound if t.name == AA_TEST), "")
    every = sorted(by_process)
    choosing = [number for number in every if number not in publishes] or every
    publishing = sorted(publishes) or choosing
    samples: dict[str, tuple[float, ...]] = {}
    for number in publishing:
        for name, values in by_process[number].items():
            samples[name] = samples.get(name, ()) + tuple(values)
    cells = estimates.cells_of([by_process[number] for number in every])
    chose, published = (cells.at([every.index(one) for one in part]) for part in (choosing, publishing))
    return Sheet(chose, published, cells, samples, twin)


def publishing_of(timings: Sequence[Timing]) -> set[int]:
    """The processes that publish; of two or more at least one publishes and one chooses, since a time that chose
    flatters. Where the roles say otherwise, the last with the most contenders changes its role."""
    contenders_of: dict[int, int] = {}
    for timing in timings:
        contenders_of[timing.process] = contenders_of.get(timing.process, 0) + (timing.name not in BESIDE)
    publishes = {timing.process for timing in timings if timing.role == Role.PUBLISH}
    if len(contenders_of) > 1 and len(publishes) in (0, len(contenders_of)):
        publishes ^= {max(contenders_of, key=lambda process: (contenders_of[process], process))}
    return publishes


def contenders(cells: Cells, names: Iterable[str]) -> Cells:
    """Those of the names that ran."""
    return cells.of([name for name in dict.fromkeys(names) if name in cells.names and len(cells.column(name))])


def fastest_of(cells: Cells) -> str:
    """The least estimate. What ran in other processes than the rest is compared in those that both have."""
    base = min(cells.names, key=lambda name: (-len(cells.column(name)), cells.us(name)))
    apart = cells.log_us - cells.log_us[:, [cells.names.index(base)]]
    return cells.names[int(np.argmin(np.nanmean(apart, axis=0)))]


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


def noise_pct(sheet: Sheet) -> float | None:
    """Percent between the times of the kernel that ran as two contenders, the median over processes."""
    names = sheet.all.names
    if not sheet.twin or sheet.twin not in names or AA_TEST not in names:
        return None
    apart = sheet.all.log_us[:, names.index(AA_TEST)] - sheet.all.log_us[:, names.index(sheet.twin)]
    known = apart[~np.isnan(apart)]
    return percent(float(np.median(np.abs(known)))) if len(known) else None


def two_digits(degrees: float) -> float:
    """Degrees of freedom to two digits, downwards: critical values hardly depend on more, and few are computed."""
    if not np.isfinite(degrees):
        return degrees
    unit = 10.0 ** (np.floor(np.log10(degrees)) - 1)
    return float(np.floor(degrees / unit) * unit)


def percent(log_ratio: float) -> float:
    return float(np.expm1(log_ratio) * 100)


def call_noise(timings: Sequence[Timing]) -> float | None:
    """The relative standard deviation of a size's calls in one process, by the kernel that ran as two contenders; None
    when none did."""
    ran = {timing.name: timing for timing in timings if timing.status == Status.OK and timing.samples_us}
    twin = ran.get(ran[AA_TEST].message) if AA_TEST in ran else None
    if twin is None:
        return None
    return estimates.call_noise(twin.samples_us, ran[AA_TEST].samples_us)

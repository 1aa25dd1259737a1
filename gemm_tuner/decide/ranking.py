"""Ranks the finalists of a size, finds ties, and computes published times. Pure functions.

A finals process either chooses or publishes (``Role``). The winner's time comes from publishing processes, or from
others where these contradict the choice (``decide.contradicted``), because the
minimum of several noisy times is biased low. ``estimates`` has the statistical model. In this module the vendor library
and the duplicate of the A/A test also count as finalists.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from gemm_tuner.core.records import Config, Problem, Role, Timing
from gemm_tuner.decide import estimates
from gemm_tuner.decide.estimates import NOTHING_KNOWN, Cells, Spread, percent
from gemm_tuner.decide.sheet import Sheet, fastest_of, finalists_of, noise_pct, sheet_of

# Among ties, a simpler configuration is preferred to the fastest if it is at most this much slower, percent.
TIE_PCT = 0.5


@dataclass(frozen=True, slots=True)
class Gap:
    """How much slower one finalist is than another (the base), in percent of the base's time.

    middle_pct: the estimate.
    low_pct:    lower confidence bound, corrected for the base being selected as the fastest of several; -inf if the
                noise is unknown.
    """

    middle_pct: float
    low_pct: float

    @property
    def is_clear(self) -> bool:
        return self.low_pct > 0


NO_GAP = Gap(0.0, float("-inf"))


@dataclass(frozen=True, slots=True)
class Ranking:
    """The result of a size's finals.

    order:     names, best first; the first one is to be chosen.
    ties:      names that are not significantly slower than the fastest, including the fastest.
    undecided: names, including the fastest, that more processes are expected to separate.
    noise_pct: difference between two runs of the same kernel (A/A test), percent; None without an A/A test.
    """

    order: tuple[str, ...]
    ties: frozenset[str] = frozenset()
    undecided: tuple[str, ...] = ()
    noise_pct: float | None = None


@dataclass(frozen=True, slots=True)
class Published:
    """The time of a finalist for the results.

    us:          estimate over the publishing processes of its ``Sheet``, or over all processes if none publishes.
    low_us, high_us: 95 % interval over processes; None for a single process.
    samples_us:  samples of those processes, concatenated.
    processes:   number of processes that ran it, including choosing ones.
    spread_pct:  largest divided by smallest of its times in these, minus 1, percent; None for a single process.
    """

    us: float
    samples_us: tuple[float, ...]
    processes: int = 1
    spread_pct: float | None = None
    low_us: float | None = None
    high_us: float | None = None


@dataclass(frozen=True)
class Judge:
    """Compares the finalists of a size, with noise estimated from all sizes of the run.

    difference, level: variance over processes of the difference between finalists, and of a finalist's time.
    most:              degrees of freedom of all sizes together, for ``difference`` and for ``level``.
    """

    difference: Spread = NOTHING_KNOWN
    level: Spread = NOTHING_KNOWN
    most: tuple[float, float] = (0.0, 0.0)

    def spread(self, cells: Cells) -> Spread:
        """The variance of a finalist's log time in one process, moderated by the variance of the run.

        A single process is not enough to estimate it, because the offset common to its calls cannot be seen.
        """
        return estimates.moderated(estimates.difference_spread(cells), self.difference, self.most[0])

    def gaps(self, cells: Cells, base: str, processes: int = 0, whole: Cells | None = None) -> dict[str, Gap]:
        """How much slower each finalist is than ``base``, by name. ``base`` may have been selected by its time.

        processes: compute the bounds as if there were this many processes; 0: the actual number.
        whole:     the same finalists in all processes of the size, for the variance if ``cells`` has one process.
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

    def rank_finalists(self, sheet: Sheet, configs: Mapping[str, Config], most_processes: int = 0) -> Ranking:
        """Ranks the finalists by the choosing processes, without the vendor library.

        most_processes: maximum number of choosing processes; determines which finalists are worth more processes.
        """
        cells = finalists_of(sheet.choosing, configs)
        if not cells.names:
            return Ranking(())
        fastest, whole = fastest_of(cells), finalists_of(sheet.all, cells.names)
        gaps = self.gaps(cells, fastest, whole=whole)
        ties = {fastest} | {name for name, gap in gaps.items() if not gap.is_clear}
        near = [name for name in ties if name == fastest or gaps[name].middle_pct <= TIE_PCT]
        preferred = min(near, key=lambda name: (configs[name].simplicity, name))
        behind = sorted(cells.names, key=lambda name: gaps[name].middle_pct if name in gaps else 0.0)
        order = (preferred, *(name for name in behind if name != preferred))
        noise = noise_pct(sheet)
        if most_processes <= cells.processes:
            return Ranking(order, frozenset(ties), (), noise)
        then = self.gaps(cells, fastest, most_processes, whole)
        undecided = sorted(name for name in ties - {fastest} if more_tell(gaps[name], then[name]))
        return Ranking(order, frozenset(ties), (fastest, *undecided) if undecided else (), noise)

    def overruling(self, sheet: Sheet, chosen: str, configs: Mapping[str, Config]) -> str:
        """The finalist that is significantly faster than the chosen one in the publishing processes, by more than
        TIE_PCT, which the choice of the simplest allows, and not significantly slower than any in all processes
        together; "" for none, also if no choosing process has a time of it."""
        cells, chose = finalists_of(sheet.publishing, configs), finalists_of(sheet.choosing, configs)
        if sheet.publishing.processes == sheet.all.processes or chosen not in cells.names or len(cells.names) < 2:
            return ""
        fastest = fastest_of(cells)
        gap = self.gaps(cells, fastest, whole=finalists_of(sheet.all, cells.names)).get(chosen, NO_GAP)
        if fastest not in chose.names or not gap.is_clear or gap.middle_pct <= TIE_PCT:
            return ""
        return fastest if fastest in self.rank_finalists(replace(sheet, choosing=sheet.all), configs).ties else ""

    def clearly_faster(self, sheet: Sheet, new: str, old: str, by_pct: float, names: Iterable[str]) -> bool:
        """Whether ``new`` is faster than the earlier choice ``old`` by more than ``by_pct`` percent, significantly.

        names: the finalists from which ``new`` was selected. False if the variance over processes is unknown.
        """
        cells = finalists_of(sheet.choosing, names)
        if new not in cells.names or old not in cells.names:
            return False
        gap = self.gaps(cells, new, whole=finalists_of(sheet.all, cells.names)).get(old, NO_GAP)
        return gap.is_clear and gap.middle_pct > by_pct

    def published(self, sheet: Sheet) -> dict[str, Published]:
        """The published times, by name."""
        own = estimates.level_spread(sheet.all)
        spread = estimates.moderated(own, self.level if own.degrees else NOTHING_KNOWN, self.most[1])
        return {name: _published(sheet, name, spread) for name in sheet.publishing.names}


def sheets_so_far(timings: Mapping[Problem, Iterable[Timing]]) -> dict[Problem, Sheet]:
    """The times of all sizes in their choosing processes, before the others have ended and whatever they find."""
    return {
        problem: sheet_of([one for one in of if one.role == Role.CHOOSE], so_far=True)
        for problem, of in timings.items()
    }


def rankings_so_far(
    sheets: Mapping[Problem, Sheet], configs: Mapping[Problem, Mapping[str, Config]], most_processes: int
) -> dict[Problem, Ranking]:
    """The rankings of all sizes. configs: of the finalists. most_processes: see ``Judge.rank_finalists``."""
    judge = judge_of((sheet, configs[problem]) for problem, sheet in sheets.items())
    return {problem: judge.rank_finalists(sheet, configs[problem], most_processes) for problem, sheet in sheets.items()}


def more_tell(gap: Gap, then: Gap) -> bool:
    """Whether more processes are worthwhile for a finalist that ties with the fastest.

    They are if it could still be faster by more than TIE_PCT, but is expected to be either significantly slower or not
    faster by that much with the maximum number of processes. then: its expected gap with that number.
    """
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
    """The comparison with the noise of all sizes of a run. sheets: (times, names of the finalists) of each size."""
    found = [(finalists_of(sheet.all, names), sheet.all) for sheet, names in sheets if sheet.all.processes > 1]
    differences = [estimates.difference_spread(cells) for cells, _ in found]
    levels = [estimates.level_spread(cells) for _, cells in found]
    most = (sum(one.degrees for one in differences), sum(one.degrees for one in levels))
    return Judge(estimates.common_spread(differences), estimates.common_spread(levels), most)


def two_digits(degrees: float) -> float:
    """Degrees of freedom rounded down to two digits, so that fewer different critical values have to be computed."""
    if not np.isfinite(degrees):
        return degrees
    unit = 10.0 ** (np.floor(np.log10(degrees)) - 1)
    return float(np.floor(degrees / unit) * unit)

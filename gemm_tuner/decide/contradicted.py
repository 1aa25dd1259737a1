"""The times of a size whose choice the publishing processes contradict. Pure functions.

Another finalist is clearly faster in these processes and wins. They have now chosen it, so its time comes from the
processes that had chosen another one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from gemm_tuner.core.records import Config, Timing
from gemm_tuner.decide.ranking import Judge, Published, Ranking
from gemm_tuner.decide.sheet import Sheet, publishing_of, sheet_of, sound_of
from gemm_tuner.launch.plan import AA_TEST, VENDOR


@dataclass(frozen=True)
class Contradicted:
    """The finals of a size in which ``better`` wins over ``chosen``, the choice of the choosing processes.

    row: the finalist that has the size's row, "" until it is known.
    """

    timings: Sequence[Timing]
    chosen: str
    better: str
    row: str = ""

    @cached_property
    def sheet(self) -> Sheet:
        """The times with all processes as choosing ones, and the same publishing ones as before."""
        sheet = sheet_of(self.timings)
        return replace(sheet, choosing=sheet.all)

    def rank(self, judge: Judge, configs: Mapping[str, Config], before: Ranking) -> Ranking:
        """``better`` first, the others as in ``before``, the ranking by the choosing processes. Ties are those of all
        processes together."""
        order = (self.better, *(name for name in before.order if name != self.better))
        return replace(judge.rank_finalists(self.sheet, configs), order=order)

    def processes_of(self, name: str) -> frozenset[int]:
        """The numbers of the processes that give a finalist's time.

        For ``better`` those that had chosen another. For ``chosen``, which was fast in these and slow in the others:
        all. For other finalists those that publish. The vendor library has its time from the processes of the row's
        finalist, and the A/A test from those of its duplicate.
        """
        owner = {AA_TEST: self.sheet.duplicated, VENDOR: self.row or self.better}.get(name, name)
        sound = sound_of(self.timings)
        every, published = {timing.process for timing in sound}, publishing_of(sound)
        numbers = {self.better: every - published, self.chosen: every}.get(owner, published)
        for one in (owner, name):
            numbers = numbers & {timing.process for timing in sound if timing.name == one}
        return frozenset(numbers or published)

    @property
    def ratios(self) -> dict[str, float]:
        """The times over that of the row's finalist, each over all processes that ran both, since published times are
        of different processes."""
        cells = self.sheet.all
        apart = cells.log_us - cells.log_us[:, [cells.names.index(self.row or self.better)]]
        shared = [column[~np.isnan(column)] for column in apart.T]
        return {name: float(np.exp(np.mean(of))) for name, of in zip(cells.names, shared, strict=True) if len(of)}

    def published(self, judge: Judge) -> dict[str, Published]:
        """The published times, by name."""
        of = {name: self.processes_of(name) for name in self.sheet.publishing.names}
        by = {numbers: judge.published(sheet_of(self.timings, publishes=numbers)) for numbers in set(of.values())}
        return {name: by[numbers][name] for name, numbers in of.items()}

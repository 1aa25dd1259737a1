"""Ranks the finalists of live functions, by the functions that rank those of GEMMs.

Blocks of rounds stand in the place of processes: every second one publishes, the others choose. All of them are of one
process, so that ties and intervals say nothing of what another process would give.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gemm_tuner.core.plain_config import PlainConfig
from gemm_tuner.core.records import Status, Timing
from gemm_tuner.decide.finals_plan import PROCESSES, FinalsPlan
from gemm_tuner.decide.ranking import Judge, Published
from gemm_tuner.decide.sheet import sheet_of
from gemm_tuner.kernels.problem import KernelProblem


@dataclass(frozen=True, slots=True)
class Ranked:
    """order: names, best first. ties: as in decide.ranking. times: to report, by name."""

    order: tuple[str, ...]
    ties: frozenset[str]
    times: Mapping[str, Published]


def rank(
    problem: KernelProblem, samples_us: Mapping[str, Sequence[float]], configs: Mapping[str, PlainConfig]
) -> Ranked:
    """samples_us: by name, one sample a round, as many of each. configs: of those that may be chosen."""
    rounds = min((len(samples) for samples in samples_us.values()), default=0)
    blocks = max(1, min(PROCESSES, rounds // 2))
    plan, timings = FinalsPlan(), []
    for block in range(blocks):
        begin, end = block * rounds // blocks, (block + 1) * rounds // blocks
        for name, samples in samples_us.items():
            part = tuple(samples[begin:end])
            timings.append(Timing(problem, name, Status.OK, part, process=block, role=plan.role(block)))
    sheet, judge = sheet_of(timings), Judge()
    ranking = judge.rank_finalists(sheet, configs)
    return Ranked(ranking.order, ranking.ties, judge.published(sheet))

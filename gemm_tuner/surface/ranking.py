"""Ranks the finalists of functions with ``decide.ranking``.

Every second process publishes, the others choose. A single process is divided into blocks of rounds that are used as
processes; ties then do not account for differences between processes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gemm_tuner.core.plain_config import PlainConfig
from gemm_tuner.core.records import Status, Timing
from gemm_tuner.decide.finals_plan import PROCESSES, FinalsPlan
from gemm_tuner.decide.ranking import Judge, Published
from gemm_tuner.decide.sheet import sheet_of
from gemm_tuner.kernels.problem import SHA_DIGITS, KernelProblem
from gemm_tuner.launch.plan import AA_TEST


@dataclass(frozen=True, slots=True)
class Ranked:
    """order: names, best first. ties: as in decide.ranking. times: published times by name. noise_pct: of the A/A
    test."""

    order: tuple[str, ...]
    ties: frozenset[str]
    times: Mapping[str, Published]
    noise_pct: float | None = None


def rank(
    name: str,
    samples_us: Mapping[str, Sequence[float]],
    configs: Mapping[str, PlainConfig],
    duplicate_of: str = "",
) -> Ranked:
    """Ranks the samples of one process. name: of the tuned function. samples_us: by name, one sample per round.

    configs: those that may be chosen. duplicate_of: the configuration that was timed a second time as AA_TEST.
    """
    rounds = min((len(samples) for samples in samples_us.values()), default=0)
    blocks = max(1, min(PROCESSES, rounds // 2))
    bounds = [(block * rounds // blocks, (block + 1) * rounds // blocks) for block in range(blocks)]
    parts = [{name: samples[begin:end] for name, samples in samples_us.items()} for begin, end in bounds]
    return rank_processes(name, parts, configs, duplicate_of)


def rank_processes(
    name: str,
    processes: Sequence[Mapping[str, Sequence[float]]],
    configs: Mapping[str, PlainConfig],
    duplicate_of: str = "",
) -> Ranked:
    """As ``rank``, for samples of several processes."""
    plan, problem = FinalsPlan(), KernelProblem(name, "0" * SHA_DIGITS, ())
    timings = [
        Timing(problem, one, Status.OK, tuple(samples), duplicate_of * (one == AA_TEST), number, plan.role(number))
        for number, part in enumerate(processes)
        for one, samples in part.items()
    ]
    sheet, judge = sheet_of(timings), Judge()
    ranking = judge.rank_finalists(sheet, configs)
    times = {name: published for name, published in judge.published(sheet).items() if name != AA_TEST}
    return Ranked(ranking.order, ranking.ties, times, ranking.noise_pct)

"""Takes the drift of a GPU's clocks out of screened times, by a reference that was called between the others."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from gemm_tuner.core.records import Problem, Status, Timing
from gemm_tuner.core.workload import workload_of
from gemm_tuner.launch.plan import REFERENCE, Work
from gemm_tuner.launch.reference import CALLS
from gemm_tuner.measure.attribution import Joined

T = TypeVar("T")
Calls = Sequence[tuple[int, float]]  # numbers of calls, and their times in microseconds


@dataclass(frozen=True)
class Drift:
    """By how much calls take longer than when the reference was screened: log_ratio at these numbers of calls, on a
    line between them."""

    at: tuple[float, ...]
    log_ratio: tuple[float, ...]

    def corrected(self, calls: Calls) -> tuple[float, ...]:
        """The times as they would have been when the reference was screened."""
        numbers = [number for number, _ in calls]
        ratios = np.exp(np.interp(numbers, self.at, self.log_ratio))
        return tuple(float(us / ratio) for (_, us), ratio in zip(calls, ratios, strict=True))


def drift_of(reference: Calls, base_us: float, base_calls: int, screened_at: float | None = None) -> Drift | None:
    """The drift that calls of the reference show; None where they show none beyond noise.

    base_us: the reference's median when it was screened, over so many calls; ``screened_at`` is about their number, if
    that was among the calls of the same process. Consecutive calls are one look at the clocks. The ratios are shrunk by
    the part of their variance that the differences within looks explain: without drift nothing is corrected, so that
    the reference's noise does not become everybody's.
    """
    looks = _looks(reference)
    inside = [(math.log(us) - _mean_log(look)) ** 2 for look in looks for _, us in look]
    freedom = sum(len(look) - 1 for look in looks)
    if not freedom or base_us <= 0:
        return None
    ratios = [_mean_log(look) - math.log(base_us) for look in looks]
    noise = sum(inside) / freedom
    of_noise = noise / base_calls + noise * statistics.mean(1 / len(look) for look in looks)
    seen = statistics.mean(ratio**2 for ratio in ratios)
    share = max(0.0, 1 - of_noise / seen) if seen else 0.0
    if not share:
        return None
    points = [(statistics.mean(number for number, _ in look), share * r) for look, r in zip(looks, ratios, strict=True)]
    if screened_at is not None:
        points.append((screened_at, 0.0))
    at, log_ratio = zip(*sorted(points), strict=True)
    return Drift(at, log_ratio)


def _looks(reference: Calls) -> list[list[tuple[int, float]]]:
    looks: list[list[tuple[int, float]]] = []
    for number, us in reference:
        if looks and looks[-1][-1][0] == number - 1:
            looks[-1].append((number, us))
        else:
            looks.append([(number, us)])
    return looks


def _mean_log(look: Calls) -> float:
    return statistics.mean(math.log(us) for _, us in look)


def of_works(works: Sequence[Work], joined: Joined, first_ok: Mapping[int, str], calls: int) -> dict[int, Drift]:
    """The drift of each screened work, by its index. first_ok: of each work, the configuration that came to its end
    first and was no loser. calls: of a configuration that is no loser."""
    found = {}
    for index, work in enumerate(works):
        reference = _calls(joined, (index, REFERENCE))
        own = () if work.reference else _calls(joined, (index, first_ok.get(index, "")))
        if not reference or not (own or work.reference):
            continue
        own = like_a_look(own, work.problem)
        base_us = work.reference_us if work.reference else math.exp(_mean_log(own))
        screened_at = statistics.mean(number for number, _ in own) if own else None
        drift = drift_of(reference, base_us, len(own) or len(like_a_look(range(calls), work.problem)), screened_at)
        if drift is not None:
            found[index] = drift
    return found


def like_a_look(timed: Sequence[T], problem: Problem) -> Sequence[T]:
    """Of a configuration's timed calls, in order, those with the operands that a look at the reference has: all, unless
    calls take different operands in turn, such as routings of an MoE layer, whose times differ without any drift."""
    return timed if workload_of(problem.kind).calls_of_a_sample(problem) == 1 else timed[:CALLS]


def _calls(joined: Joined, key: tuple[int, str]) -> Calls:
    return list(zip(joined.numbers.get(key, ()), joined.samples_us.get(key, ()), strict=True))


def corrected(joined: Joined, key: tuple[int, str], drift: Drift) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """(samples, own times of kernels) of a configuration, without the drift."""
    samples, kernels = joined.samples_us.get(key, ()), joined.kernels_us.get(key, ())
    if not samples:
        return samples, kernels
    without = drift.corrected(_calls(joined, key))
    factor = statistics.median(without) / statistics.median(samples)
    return without, tuple(us * factor for us in kernels)


def reference_of(timings: Sequence[Timing], problem: Problem) -> tuple[str, float]:
    """(name, microseconds) of the configuration of a size that was screened first; ("", 0.0) where none was.

    timings: in the order they came. The first, not the fastest: the fastest of many noisy times is too fast, and all
    later ones would be compared with that.
    """
    for timing in timings:
        if timing.problem == problem and timing.status is Status.OK and timing.samples_us:
            return timing.name, statistics.geometric_mean(like_a_look(timing.samples_us, problem))
    return "", 0.0

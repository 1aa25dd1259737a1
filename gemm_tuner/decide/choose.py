"""Builds the Choice of a size from timings and verdicts."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from gemm_tuner.core.choice import Choice
from gemm_tuner.core.records import Config, Device, Problem, Status, Timing, Verdict, Verified
from gemm_tuner.core.workload import workload_of
from gemm_tuner.decide.estimates import quantiles_us
from gemm_tuner.decide.ranking import Published
from gemm_tuner.launch.plan import VENDOR


@dataclass(frozen=True, slots=True)
class Ranked:
    """The ranked configurations of a size. order: names, best first. times: by name, including the vendor library's.

    ratios: by name, the time over that of the row's configuration, where ``times`` are of different processes; empty
    where they are of the same.
    """

    problem: Problem
    order: tuple[str, ...]
    times: Mapping[str, Published]
    ratios: Mapping[str, float] = field(default_factory=dict)

    @property
    def vendor(self) -> Published | None:
        return self.times.get(VENDOR)


def rank_screened(problem: Problem, timings: Iterable[Timing]) -> Ranked:
    """Ranks the fully screened configurations by median. (The minimum would favour noisy configurations.)"""
    mine = [t for t in timings if t.problem == problem and t.status == Status.OK and t.samples_us]
    times = {timing.name: Published(float(np.median(timing.samples_us)), timing.samples_us) for timing in mine}
    order = sorted((name for name in times if name != VENDOR), key=lambda name: times[name].us)
    return Ranked(problem, tuple(order), times)


def without(ranked: Ranked, names: Container[str]) -> Ranked:
    """The ranking without some configurations, such as those found wrong."""
    return replace(ranked, order=tuple(name for name in ranked.order if name not in names))


def measured_choice(
    ranked: Ranked,
    name: str,
    config: Config,
    verdicts: Sequence[Verdict],
    device: Device,
    source: str,
    ties: Container[str] = (),
) -> Choice:
    """The Choice of a measured and verified configuration, with times of ``ranked``.

    The runner-up is the fastest other configuration that is not known to be wrong. ties: names that are not
    significantly slower than the fastest.
    """
    ours, vendor = ranked.times[name], ranked.vendor
    p20, p80 = quantiles_us(ours.samples_us)
    ratios = ranked.ratios or {other: time.us / ours.us for other, time in ranked.times.items()}
    others = [other for other in ranked.order if other != name and other in ratios]
    runner_up = min(others, key=lambda other: ratios[other], default="")
    return Choice(
        problem=ranked.problem,
        config=config,
        source=source,
        verified=how_verified(verdicts, Verified.TRUE),
        median_us=ours.us,
        p20_us=p20,
        p80_us=p80,
        num_samples=len(ours.samples_us),
        vendor_us=vendor.us if vendor else None,
        max_abs_error=max(v.max_abs_error for v in verdicts),
        error_over_bound=max(v.error_over_bound for v in verdicts),
        runner_up=runner_up,
        gap_pct=(ratios[runner_up] - 1) * 100 if runner_up else None,
        tie=name in ties and any(other in ties for other in others),
        roofline_pct=share_of_roofline_pct(ranked.problem, device, ours.us),
        derived=derived_of(ranked.problem, config, device),
        processes=ours.processes,
        process_spread_pct=ours.spread_pct,
    )


def predicted_choice(
    problem: Problem,
    name: str,
    kept: dict[str, Config],
    predicted_us: dict[str, float],
    verdicts: Sequence[Verdict],
    device: Device,
) -> Choice:
    """The Choice of a configuration that was checked in the interpreter but not timed; its time is the model's."""
    ranked = sorted(predicted_us, key=lambda other: predicted_us[other])
    runner_up = next(iter(ranked[ranked.index(name) + 1 :]), "")
    ours = predicted_us[name]
    return Choice(
        problem=problem,
        config=kept[name],
        source="predicted",
        verified=how_verified(verdicts, Verified.INTERPRETED),
        median_us=ours,
        p20_us=None,
        p80_us=None,
        num_samples=0,
        vendor_us=None,
        max_abs_error=max(v.max_abs_error for v in verdicts),
        error_over_bound=max(v.error_over_bound for v in verdicts),
        runner_up=runner_up,
        gap_pct=(predicted_us[runner_up] / ours - 1) * 100 if runner_up else None,
        tie=False,
        roofline_pct=share_of_roofline_pct(problem, device, ours),
        derived=derived_of(problem, kept[name], device),
    )


def how_verified(verdicts: Iterable[Verdict], where: Verified) -> Verified:
    """The weakest of a configuration's checks. where: TRUE or INTERPRETED, the value for checks with a reference."""
    found = {verdict.how for verdict in verdicts}
    return next((one for one in (Verified.FALSE, Verified.AGREED) if one in found), where)


def derived_of(problem: Problem, config: Config, device: Device) -> tuple[tuple[str, Any], ...]:
    return tuple(workload_of(problem.kind).derived(problem, config, device).items())


def share_of_roofline_pct(problem: Problem, device: Device, us: float) -> float:
    """The lower bound from the device's data sheet as a percentage of ``us``; 0 if unknown."""
    least_us = workload_of(problem.kind).roofline_us(problem, device)
    return least_us / us * 100 if least_us else 0.0

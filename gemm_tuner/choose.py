"""From timings and verdicts to the one configuration that a size is given."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gemm_tuner.launcher.plan import VENDOR
from gemm_tuner.model import roofline_us
from gemm_tuner.records import Choice, Device, GemmProblem, KernelConfig, Status, Timing, Verdict, Verified


@dataclass(frozen=True, slots=True)
class Ranked:
    """The timed configurations of a size, fastest first, and the vendor library's time."""

    problem: GemmProblem
    timings: tuple[Timing, ...]
    vendor: Timing | None


def median_us(timing: Timing) -> float:
    """The median of the samples, microseconds. Medians, since "the fastest of many" flatters the noisiest."""
    return float(np.median(timing.samples_us))


def behind_pct(timing: Timing, other: Timing) -> float:
    """How much slower a timing is than another, percent, by the medians of the rounds that both have."""
    rounds = min(len(timing.samples_us), len(other.samples_us))
    return float(np.median(timing.samples_us[:rounds]) / np.median(other.samples_us[:rounds]) - 1) * 100


def vendor_us_beside(timing: Timing, vendor: Timing) -> float:
    """The median of the vendor library in the rounds that a timing has too, microseconds."""
    return float(np.median(vendor.samples_us[: len(timing.samples_us)]))


def rank(problem: GemmProblem, timings: Iterable[Timing]) -> Ranked:
    """Sorts the fully timed configurations by median."""
    mine = [t for t in timings if t.problem == problem and t.status == Status.OK and t.samples_us]
    vendor = next((t for t in mine if t.name == VENDOR), None)
    return Ranked(problem, tuple(sorted((t for t in mine if t.name != VENDOR), key=median_us)), vendor)


def without(ranked: Ranked, names: Container[str]) -> Ranked:
    """The ranking less some configurations, such as those found wrong."""
    return replace(ranked, timings=tuple(t for t in ranked.timings if t.name not in names))


def measured_choice(
    ranked: Ranked,
    name: str,
    config: KernelConfig,
    verdicts: Sequence[Verdict],
    device: Device,
    source: str,
    ties: Container[str] = (),
) -> Choice:
    """The record of a chosen, verified configuration; times are those of ``ranked``.

    The runner-up is the fastest of the others that are not known to be wrong. ties: names that noise cannot tell from
    the fastest.
    """
    timing = next(t for t in ranked.timings if t.name == name)
    ours = median_us(timing)
    p20, p80 = (float(np.quantile(timing.samples_us, q)) for q in (0.2, 0.8))
    others = [t for t in ranked.timings if t.name != name]
    runner_up = min(others, key=lambda other: behind_pct(other, timing), default=None)
    return Choice(
        problem=ranked.problem,
        config=config,
        source=source,
        verified=Verified.TRUE,
        median_us=ours,
        p20_us=p20,
        p80_us=p80,
        num_samples=len(timing.samples_us),
        vendor_us=vendor_us_beside(timing, ranked.vendor) if ranked.vendor else None,
        max_abs_error=max(v.max_abs_error for v in verdicts),
        error_over_bound=max(v.error_over_bound for v in verdicts),
        runner_up=runner_up.name if runner_up else "",
        gap_pct=behind_pct(runner_up, timing) if runner_up else None,
        tie=runner_up is not None and name in ties and runner_up.name in ties,
        roofline_pct=roofline_us(ranked.problem, device) / ours * 100,
    )


def predicted_choice(
    problem: GemmProblem,
    name: str,
    kept: dict[str, KernelConfig],
    predicted_us: dict[str, float],
    verdicts: Sequence[Verdict],
    device: Device,
) -> Choice:
    """The record of a configuration that was not timed: its time is the model's; the interpreter checked it."""
    ranked = sorted(predicted_us, key=lambda other: predicted_us[other])
    runner_up = next(iter(ranked[ranked.index(name) + 1 :]), "")
    ours = predicted_us[name]
    return Choice(
        problem=problem,
        config=kept[name],
        source="predicted",
        verified=Verified.INTERPRETED,
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
        roofline_pct=roofline_us(problem, device) / ours * 100,
    )

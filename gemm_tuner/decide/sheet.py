"""Arranges the timings of a size's finals as a table of processes and finalists. Pure functions.

In this module the vendor library and the duplicate of the A/A test also count as finalists.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, geometric_mean

import numpy as np

from gemm_tuner.core.records import Role, Status, Timing
from gemm_tuner.core.workload import workload_of
from gemm_tuner.decide import estimates
from gemm_tuner.decide.estimates import Cells, percent
from gemm_tuner.launch.plan import AA_TEST, VENDOR

# Names in finals that cannot be chosen.
BESIDE = frozenset((VENDOR, AA_TEST))
# Pairs of successive calls from which the noise of screening is estimated: at least those of seven configurations.
LEAST_PAIRS = 20


@dataclass(frozen=True)
class Sheet:
    """The times of a size's finals, by the role of the process.

    all:        choosing and publishing processes together.
    samples_us: samples of the publishing processes, by name.
    duplicated: name of the finalist that was timed a second time as the A/A test; "" for none.
    """

    choosing: Cells
    publishing: Cells
    all: Cells
    samples_us: Mapping[str, tuple[float, ...]]
    duplicated: str = ""


def samples_of(timing: Timing) -> tuple[float, ...]:
    """The means over the calls that make a sample (the calls themselves where there are fewer), those that decide."""
    workload = workload_of(timing.problem.kind)
    calls, us = workload.calls_of_a_sample(timing.problem), timing.samples_us
    whole = len(us) // calls
    means = tuple(fmean(us[at * calls : (at + 1) * calls]) for at in range(whole)) if calls > 1 and whole else us
    return workload.deciding(timing.problem, means)


def sheet_of(timings: Iterable[Timing], *, so_far: bool = False, publishes: Collection[int] | None = None) -> Sheet:
    """The table of a size's finals. timings: one per finalist and process. so_far: those that publish may be missing.
    publishes: the numbers of those that publish, if their roles are not to tell.

    Finalists that failed in any process, or have no time in a publishing process (and so no time to report), and
    processes without finalists are left out.
    """
    sound = sound_of([replace(t, samples_us=samples_of(t)) for t in timings])
    if publishes is None:
        publishes = set() if so_far else publishing_of(sound)
    reported = {t.name for t in sound if t.process in publishes or not publishes} | BESIDE
    by_process: dict[int, dict[str, tuple[float, ...]]] = {}
    for timing in sound:
        if timing.name in reported:
            by_process.setdefault(timing.process, {})[timing.name] = timing.samples_us
    duplicated = next((t.message for t in sound if t.name == AA_TEST), "")
    every = sorted(by_process)
    choosing = [number for number in every if number not in publishes] or every
    publishing = sorted(publishes) or choosing
    samples: dict[str, tuple[float, ...]] = {}
    for number in publishing:
        for name, values in by_process[number].items():
            samples[name] = samples.get(name, ()) + tuple(values)
    cells = estimates.cells_of([by_process[number] for number in every])
    chose, published = (cells.at([every.index(one) for one in part]) for part in (choosing, publishing))
    return Sheet(chose, published, cells, samples, duplicated)


def sound_of(timings: Sequence[Timing]) -> list[Timing]:
    """The times of finalists that failed in no process, and those beside them, from processes that timed a finalist."""
    out = {t.name for t in timings if t.status not in (Status.OK, Status.MISSING_IN_TRACE)}
    sound = [t for t in timings if t.status == Status.OK and t.samples_us and t.name not in out]
    processes = {t.process for t in sound if t.name not in BESIDE}
    return [t for t in sound if t.process in processes]


def publishing_of(timings: Sequence[Timing]) -> set[int]:
    """The numbers of the publishing processes. Of two or more processes, at least one publishes and one chooses.

    If the recorded roles violate this, the process with the most finalists (the last of several) changes its role.
    """
    finalists_in: dict[int, int] = {}
    for timing in timings:
        finalists_in[timing.process] = finalists_in.get(timing.process, 0) + (timing.name not in BESIDE)
    publishes = {timing.process for timing in timings if timing.role == Role.PUBLISH}
    if len(finalists_in) > 1 and len(publishes) in (0, len(finalists_in)):
        publishes ^= {max(finalists_in, key=lambda process: (finalists_in[process], process))}
    return publishes


def summed_us(timings: Sequence[Timing], name: str, publishes: Collection[int] | None = None) -> float | None:
    """The own times of the kernels of a finalist's call, added up, microseconds: the geometric mean over the publishing
    processes, as its time. None where a call is one kernel, or where calls of a sample differ in their operands.

    publishes: the numbers of those that publish, if their roles are not to tell.
    """
    sound = sound_of(timings)
    publishes = publishing_of(sound) if publishes is None else publishes
    found = [
        sum(one.kernels_us)
        for one in sound
        if one.name == name and one.kernels_us and (not publishes or one.process in publishes)
        if workload_of(one.problem.kind).calls_of_a_sample(one.problem) == 1
    ]
    return geometric_mean(found) if found else None


def finalists_of(cells: Cells, names: Iterable[str]) -> Cells:
    """The cells of those names that ran."""
    return cells.of([name for name in dict.fromkeys(names) if name in cells.names and len(cells.column(name))])


def fastest_of(cells: Cells) -> str:
    """The name with the smallest estimate. Two finalists are compared over the processes that ran both."""
    base = min(cells.names, key=lambda name: (-len(cells.column(name)), cells.us(name)))
    apart = cells.log_us - cells.log_us[:, [cells.names.index(base)]]
    shared = (~np.isnan(apart)).sum(axis=0)  # none after a kill in repeated finals, which have other finalists
    means = np.where(shared, np.nansum(apart, axis=0) / np.maximum(shared, 1), np.inf)
    return cells.names[int(np.argmin(means))]


def noise_pct(sheet: Sheet) -> float | None:
    """Difference between the two runs of the A/A test in percent, median over processes; None without an A/A test."""
    names = sheet.all.names
    if not sheet.duplicated or sheet.duplicated not in names or AA_TEST not in names:
        return None
    apart = sheet.all.log_us[:, names.index(AA_TEST)] - sheet.all.log_us[:, names.index(sheet.duplicated)]
    known = apart[~np.isnan(apart)]
    return percent(float(np.median(np.abs(known)))) if len(known) else None


def call_noise(timings: Sequence[Timing]) -> float | None:
    """The relative standard deviation of a size's calls in its first process, from the A/A test; None without an A/A
    test."""
    first = min((timing.process for timing in timings), default=0)
    ran = {t.name: t for t in timings if t.process == first and t.status == Status.OK and t.samples_us}
    duplicated = ran.get(ran[AA_TEST].message) if AA_TEST in ran else None
    return None if duplicated is None else estimates.call_noise(duplicated.samples_us, ran[AA_TEST].samples_us)


def screening_noise(timings: Iterable[Timing]) -> float | None:
    """The relative standard deviation of a size's calls in screening; None with few of them. The first timed call of a
    configuration is left out, since the host waits between it and the others (``launch.timing.screen``)."""
    series = (timing.samples_us[1:] for timing in timings if timing.status == Status.OK)
    return estimates.successive_noise(series, LEAST_PAIRS)

"""The samples of a finals process, from its own clock or from a profiler's trace."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gemm_tuner.measure import attribution
from gemm_tuner.measure import calls as journalled
from gemm_tuner.profilers import Profiler


def by_name(names: Sequence[str], samples_us: Sequence[float]) -> dict[str, tuple[float, ...]]:
    found: dict[str, list[float]] = {}
    for name, us in zip(names, samples_us, strict=True):
        found.setdefault(name, []).append(us)
    return {name: tuple(samples) for name, samples in found.items()}


def samples_of_trace(profiler: Profiler, where: Path, turns: Sequence[str]) -> dict[str, tuple[float, ...]]:
    """The times of the timed calls, by name: the sum of the kernels between the call's markers, or in its scope."""
    index = {name: number for number, name in enumerate(dict.fromkeys(turns))}
    calls = [
        journalled.Call(number, index[name], name, (), False, 1, number // len(index))
        for number, name in enumerate(turns)
    ]
    joined = attribution.join(profiler.read(where), calls, by_scope=profiler.uses_scopes)
    return {name: samples for (_, name), samples in joined.samples_us.items()}

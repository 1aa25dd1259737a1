"""Screening on a GPU whose clocks drift: the real launcher and the real join, on kernels of known times."""

from __future__ import annotations

import io
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from samples import problem

from gemm_tuner.core.markers import BEGIN_SYMBOL, END_SYMBOL, FLUSH_SYMBOL
from gemm_tuner.core.records import Status, Timing
from gemm_tuner.gemm.workload import WORKLOAD
from gemm_tuner.launch import bench as bench_module
from gemm_tuner.launch.bench import Bench
from gemm_tuner.launch.journal import Called, Journal, event_of
from gemm_tuner.launch.plan import REFERENCE, SCREEN, STOP_FILE, Method, Plan, Work
from gemm_tuner.launch.processor import Cpu
from gemm_tuner.launch.timing import screen
from gemm_tuner.measure.drift import drift_of, reference_of
from gemm_tuner.measure.parse_run import Key, collect
from gemm_tuner.profilers.base import TRACE_COLUMNS

SIZE = problem(16, 16, 16)
NOISE = 0.003
# The true times: the best is the last but one. What is tried first is predicted best.
TRUE_US = {f"c{at:02d}": 900.0 - 4 * at + 30 * (at % 3) for at in range(36)}
BEST = min(TRUE_US, key=lambda name: TRUE_US[name])


class IdlingCpu(Cpu):
    idles = True


@dataclass
class DriftingGpu(ModuleType):
    """Runs what the launcher launches, on a clock of its own. drift: the part by which a kernel takes longer, by the
    seconds since the GPU began."""

    drift: Callable[[float], float]
    us: dict[str, float] = field(default_factory=lambda: dict(TRUE_US))
    rows: list[tuple[str, int, float]] = field(default_factory=list)
    now_s: float = 0.0
    looks: int = 0

    def __post_init__(self) -> None:
        super().__init__("script")
        self.CONFIGS = {name: {"name": name} for name in self.us}
        self._dice = random.Random(7)

    def run(self, symbol: str, factor: float = 1.0) -> None:
        us = factor * self.us.get(symbol.removesuffix("_kernel"), 40.0)
        us *= (1 + self.drift(self.now_s)) * (1 + NOISE * self._dice.gauss(0, 1))
        self.rows.append((symbol, int(self.now_s * 1e9), us * 1000))
        self.now_s += us / 1e6

    def scratch(self, config: Any, size: Any, num_sms: int) -> tuple[int, int]:
        return 0, 0

    def calls(self, config: Any, size: Any, operands: Any, scratch: Any, num_sms: int) -> list[Any]:
        symbol = f"{config['name']}_kernel"
        factor = operands if isinstance(operands, float) else 1.0
        launch = {(1,): lambda *positional, **options: self.run(symbol, factor)}
        return [(symbol, launch, (1,), (), {})]

    def trace(self) -> Any:
        import pandas as pd

        return pd.DataFrame([(*row, "", "") for row in self.rows], columns=list(TRACE_COLUMNS))


@pytest.fixture
def screened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[Key, Timing]]:
    """Screens a work as a launcher of its own does, ``every``: how often the reference is called."""

    def screened(gpu: DriftingGpu, work: Work, every: int = 8) -> dict[Key, Timing]:
        clock = SimpleNamespace(perf_counter=lambda: gpu.now_s, sleep=lambda s: None, time=lambda: gpu.now_s)
        monkeypatch.setattr(bench_module, "time", clock)
        gpu.rows.clear()
        journal = io.StringIO()
        plan = Plan(SCREEN, ("s",), (work,), Method(reference_every=every, flush_bytes=4), device="cpu")
        kernels = {one: (lambda *_, one=one: gpu.run(one)) for one in (BEGIN_SYMBOL, END_SYMBOL, FLUSH_SYMBOL)}
        language: Any = SimpleNamespace(support_calls=lambda flush_bytes, device: kernels)
        screen(Bench(plan, Journal(journal), tmp_path / STOP_FILE, language, IdlingCpu()), 0, work, [gpu])
        events = [event_of(line, "journal") for line in journal.getvalue().splitlines()]
        gpu.looks = sum(isinstance(one, Called) and one.name == REFERENCE for one in events)
        profiler: Any = SimpleNamespace(read=lambda where: gpu.trace(), uses_scopes=False, keeps_real_time=True)
        return collect(plan, events, profiler, tmp_path)

    return screened


def work_of(*names: str, **more: Any) -> Work:
    return Work(SIZE, tuple((0, name) for name in names), **more)


def fastest(timings: dict[Key, Timing]) -> str:
    return min((sorted(t.samples_us)[len(t.samples_us) // 2], t.name) for t in timings.values())[1]


def warming(seconds: float) -> float:
    """By 27 %, over what half of the configurations take."""
    return 0.27 * min(1.0, seconds / 0.12)


def test_operands_of_different_times_are_no_drift(
    screened: Callable[..., dict[Key, Timing]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calls take three sets of operands in turn, as those of an MoE layer take routings: the third takes longer."""
    sets = [1.0, 1.001, 1.5]
    monkeypatch.setattr(type(WORKLOAD), "operands", lambda *of: sets)
    monkeypatch.setattr(type(WORKLOAD), "calls_of_a_sample", lambda self, problem: len(sets))
    names = list(TRUE_US)
    first = screened(DriftingGpu(lambda s: 0.0), work_of(*names[:18]))
    name, us = reference_of(list(first.values()), SIZE)
    second = screened(DriftingGpu(lambda s: 0.0), work_of(*names[18:], reference=((0, name),), reference_us=us))
    for timing in {**first, **second}.values():
        mean_us = sum(timing.samples_us[:3]) / 3  # each set once
        assert mean_us == pytest.approx(TRUE_US[timing.name] * sum(sets) / 3, rel=0.02)


def test_a_gpu_that_slows_down_ranks_right_by_its_reference(screened: Callable[..., dict[Key, Timing]]) -> None:
    work = work_of(*TRUE_US)
    assert fastest(screened(DriftingGpu(warming), work, every=0)) != BEST
    found = screened(DriftingGpu(warming), work)
    assert fastest(found) == BEST and set(found) == {(SIZE, name) for name in TRUE_US}


def test_a_later_round_is_compared_with_the_first(screened: Callable[..., dict[Key, Timing]]) -> None:
    """The GPU was cool in the first, and is hot all through the second, which has the slower configurations."""
    names = sorted(TRUE_US, key=lambda name: TRUE_US[name], reverse=True)
    first = screened(DriftingGpu(lambda s: 0.0), work_of(*names[:18]))
    name, us = reference_of(list(first.values()), SIZE)
    assert name == names[0] and us == pytest.approx(TRUE_US[name], rel=0.01)
    again = work_of(*names[18:], reference=((0, name),), reference_us=us)
    hot = screened(DriftingGpu(lambda s: 0.2), again)
    for timing in hot.values():
        assert timing.samples_us[0] == pytest.approx(TRUE_US[timing.name], rel=0.02)
    assert fastest({**first, **hot}) == BEST


@pytest.mark.parametrize(("shorter", "looks"), [(1, 2 * 5), (100, 0)])
def test_calls_too_short_to_heat_the_gpu_have_no_reference(
    screened: Callable[..., dict[Key, Timing]], shorter: int, looks: int
) -> None:
    gpu = DriftingGpu(warming, {name: us / shorter for name, us in TRUE_US.items()})
    screened(gpu, work_of(*TRUE_US))
    assert gpu.looks == looks


def test_a_reference_that_fails_costs_nobody_its_time(screened: Callable[..., dict[Key, Timing]]) -> None:
    class Failing(DriftingGpu):
        def run(self, symbol: str, factor: float = 1.0) -> None:
            if symbol == "c00_kernel" and self.now_s > 0.05:
                raise RuntimeError("out of memory")
            super().run(symbol, factor)

    found = screened(Failing(lambda s: 0.0), work_of(*TRUE_US))
    assert {timing.status for timing in found.values()} == {Status.OK}


@pytest.mark.parametrize("noise", [0.003, 0.03])
def test_noise_of_the_reference_is_not_taken_for_drift(noise: float) -> None:
    """Without drift the corrections are a small part of what the looks at the reference differ by."""
    dice = random.Random(3)
    moved = []
    for _ in range(200):
        calls = [(10 * look + call, 500 * math.exp(dice.gauss(0, noise))) for look in range(8) for call in range(2)]
        drift = drift_of(calls, 500 * math.exp(dice.gauss(0, noise / math.sqrt(5))), 5, 0.0)
        moved.append(math.log(drift.corrected([(35, 1.0)])[0]) if drift else 0.0)
    assert math.sqrt(sum(one**2 for one in moved) / len(moved)) < 0.42 * noise  # half of the error of a look


def test_a_reference_is_the_first_that_ran() -> None:
    def timing(name: str, status: Status, *samples: float) -> Timing:
        return Timing(SIZE, name, status, samples)

    none = timing("a", Status.CRASHED), timing("b", Status.EARLY_STOPPED, 9.0)
    assert reference_of(none, SIZE) == ("", 0.0)
    assert reference_of([*none, timing("c", Status.OK, 4.0), timing("d", Status.OK, 2.0)], SIZE) == ("c", 4.0)
    other = replace(timing("e", Status.OK, 1.0), problem=problem(8, 8, 8))
    assert reference_of([other], SIZE) == ("", 0.0)

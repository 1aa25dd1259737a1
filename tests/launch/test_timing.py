"""What a launcher process does with its plan: rounds, one kernel twice (A/A), and what the trace shows of them."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from launcher_on_cpu import NAMES, IdlingCpu, Kernel, Launcher, Script, work

from gemm_tuner.core.markers import FLUSH_SYMBOL
from gemm_tuner.launch import bench as bench_module
from gemm_tuner.launch import timing as timing_module
from gemm_tuner.launch.plan import AA_TEST
from gemm_tuner.launch.timing import finals, screen
from gemm_tuner.measure.attribution import calls_of


def test_finals_run_in_rounds_each_in_another_order_and_one_kernel_twice(tmp_path: Path) -> None:
    launcher = Launcher(tmp_path)
    finals(launcher.bench, 0, work(*NAMES, again="b", rounds=8), [Script()])
    assert set(launcher.events("end")) == {("end", name) for name in (*NAMES, AA_TEST)}
    timed = [name for name, _, warm in launcher.calls() if not warm]
    rounds = [timed[start : start + 4] for start in range(0, len(timed), 4)]
    assert len(rounds) == 8 and all(sorted(one) == sorted((*NAMES, AA_TEST)) for one in rounds)
    assert len({tuple(one) for one in rounds}) > 3
    assert {tuple(symbols) for name, symbols, _ in launcher.calls() if name == AA_TEST} == {("b_kernel",)}


@pytest.mark.parametrize(
    ("us_a_call", "busy_calls", "rests"),
    [(0, (), 0), (1000, (), 1), (10, (3, 4, 6, 7), 0), (10, (3, 4, 5, 6, 7), 1)],
)
def test_the_gpu_rests_after_a_size_of_long_calls_only(
    us_a_call: int, busy_calls: tuple[int, ...], rests: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not after calls that took long because something else kept the host busy in all rounds but one. The round to warm
    up, without flushes, tells nothing."""
    now_s, slept, made = [0.0], list[float](), [0]

    def runs() -> None:
        made[0] += 1  # the first is no round, and the second one to warm up
        now_s[0] += (1000 if made[0] in busy_calls else us_a_call) / 1e6

    clock = SimpleNamespace(perf_counter=lambda: now_s[0], sleep=slept.append, time=time.time)
    monkeypatch.setattr(bench_module, "time", clock)
    monkeypatch.setattr(timing_module, "time", clock)
    launcher = Launcher(tmp_path)
    finals(launcher.bench, 0, work("a", rounds=5), [Script(a=runs)])
    assert slept == []
    finals(launcher.bench, 1, work("a", rounds=5), [Script(a=runs)])
    since_s = us_a_call / 1e6  # of the first call of the next size
    assert slept == pytest.approx([bench_module.REST_S - since_s] * rests)


class SimulatedGpu(IdlingCpu):
    """A queue in simulated time: what the host launches starts when the GPU is free. waits_us: how long the GPU had
    nothing to do before each launch. late_us: the host goes on so much later, once, after the third wait."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = self.free_at_s = 0.0
        self.waits_us: list[tuple[str, float]] = []
        self.late_us, self._waits = 0.0, 0

    def launched(self, name: str, host_us: float, gpu_us: float) -> None:
        self.now_s += host_us / 1e6
        self.waits_us.append((name, max(0.0, self.now_s - self.free_at_s) * 1e6))
        self.free_at_s = max(self.free_at_s, self.now_s) + gpu_us / 1e6

    def wait(self) -> None:
        self.now_s = max(self.now_s, self.free_at_s)
        self._waits += 1
        if self._waits == 3:
            self.now_s, self.late_us = self.now_s + self.late_us / 1e6, 0.0


class ThreeKernels(Script):
    """Calls of three kernels, which the host takes longer to launch than the GPU to run."""

    def calls(self, config: Any, size: Any, operands: Any, scratch: Any, num_sms: int) -> list[Any]:
        does = self._does[config["name"]]
        return [(f"{config['name']}_{number}", Kernel(does), (1,), (), {}) for number in range(3)]


@pytest.mark.parametrize(
    ("sweep_us", "launch_us", "full"),
    [(50.0, 40.0, True), (5.5, 40.0, True), (30.0, 300.0, True), (30.0, 340.0, False)],
)
@pytest.mark.parametrize("late_us", [0.0, 8000.0])
def test_no_wait_for_the_host_is_in_the_span_of_a_call(
    sweep_us: float, launch_us: float, full: bool, late_us: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The journal says of each timed call whether that is so. One flush of as many sweeps as keep the GPU busy for
    twice the time that the host takes to launch a call's three kernels comes before it, unless that takes too long. How
    long a sweep takes is known also where the host was held up once when it was measured."""
    gpu = SimulatedGpu()
    clock = SimpleNamespace(perf_counter=lambda: gpu.now_s, sleep=lambda s: None, time=time.time)
    monkeypatch.setattr(bench_module, "time", clock)
    monkeypatch.setattr(timing_module, "time", clock)
    launcher = Launcher(
        tmp_path,
        flush=lambda sweeps: gpu.launched(FLUSH_SYMBOL, 5.0, sweeps * sweep_us),
        flush_bytes=4096,
    )
    launcher.bench.processor = gpu
    gpu.late_us = late_us
    launcher.bench.spin_up()
    assert gpu.late_us == 0.0
    gpu.waits_us.clear()
    finals(launcher.bench, 0, work("a", rounds=5), [ThreeKernels(a=lambda: gpu.launched("kernel", launch_us, 3.0))])
    timed = [call for call in calls_of(launcher.journal()) if not call.warm]
    assert len(timed) == 5 and [call.queued for call in timed] == [full] * 5
    waits = [us for name, us in gpu.waits_us if name == "kernel"][-15:]
    assert (max(waits) == 0.0) == full
    assert [name for name, _ in gpu.waits_us].count(FLUSH_SYMBOL) == len(timed), "one launch a call"


@pytest.mark.parametrize("stage", [screen, finals])
def test_the_journal_explains_every_row_of_the_trace_flushes_included(
    stage: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the spin-up, and those of the rests between two sizes."""
    monkeypatch.setattr(bench_module, "SPIN_UP_SWEEPS", 3 * bench_module.SPUN_SWEEPS)
    monkeypatch.setattr(bench_module, "TIMED_SPINS", 1)
    monkeypatch.setattr(bench_module, "REST_S", 0)
    monkeypatch.setattr(bench_module, "TIRING_CALL_US", -1)
    launched = list[str]()
    script = Script(**{name: partial(launched.append, f"{name}_kernel") for name in NAMES})
    launcher = Launcher(tmp_path, support=launched.append, flush_bytes=4096)
    launcher.bench.spin_up()
    for index in range(2):
        stage(launcher.bench, index, work(*NAMES), [script])
    calls = calls_of(launcher.journal())
    assert [name for call in calls for name in call.rows] == launched
    spun = 4 + 3 * (stage is finals)
    assert launched.count(FLUSH_SYMBOL) == spun + sum(not call.warm for call in calls)
    assert {call.round for call in calls if not call.warm} == ({1, 2, 3} if stage is finals else {None})


def test_processes_run_in_other_orders(tmp_path: Path) -> None:
    orders = []
    for process in (0, 1, 1):
        launcher = Launcher(tmp_path, process=process)
        finals(launcher.bench, 0, work(*NAMES, rounds=8), [Script()])
        orders.append([name for name, _, warm in launcher.calls() if not warm])
    assert orders[0] != orders[1] == orders[2]


def test_without_rounds_of_its_own_a_work_has_the_methods(tmp_path: Path) -> None:
    launcher = Launcher(tmp_path)
    finals(launcher.bench, 0, work("a", "b"), [Script()])
    assert sum(not warm for _, _, warm in launcher.calls()) == 2 * 3
    assert AA_TEST not in [name for name, _, _ in launcher.calls()]


def fails() -> None:
    raise RuntimeError("out of memory")


def test_a_twin_of_one_that_failed_does_not_run(tmp_path: Path) -> None:
    launcher = Launcher(tmp_path)
    finals(launcher.bench, 0, work(*NAMES, again="b"), [Script(b=fails)])
    assert set(launcher.events("end")) == {("end", "a"), ("end", "c")}
    assert launcher.events("fail") == [("fail", "b")]

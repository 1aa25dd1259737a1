"""What a launcher process does with its plan: rounds, one kernel twice (A/A), losers, a deadline, a stop."""

from __future__ import annotations

import contextlib
import io
import json
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from samples import problem

from gemm_tuner.core.markers import BEGIN_SYMBOL, END_SYMBOL, FLUSH_SYMBOL, LONG_FLUSH, LONG_FLUSH_SWEEPS
from gemm_tuner.launch import bench as bench_module
from gemm_tuner.launch import main as main_module
from gemm_tuner.launch import timing as timing_module
from gemm_tuner.launch.bench import Bench
from gemm_tuner.launch.failures import StickyError
from gemm_tuner.launch.journal import Event, Journal, event_of
from gemm_tuner.launch.plan import AA_TEST, FINALS, SCREEN, STOP_FILE, Method, Plan, Work
from gemm_tuner.launch.processor import Cpu
from gemm_tuner.launch.timing import LEAST_ROUNDS, finals, screen
from gemm_tuner.measure.attribution import calls_of

SIZE = problem(16, 16, 16)
NAMES = ("a", "b", "c")
SYMBOLS = (BEGIN_SYMBOL, END_SYMBOL, FLUSH_SYMBOL)


class Kernel:
    """Counts its launches; ``does`` is what a launch comes to."""

    def __init__(self, does: Callable[[], None]) -> None:
        self._does = does

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        return lambda *positional, **options: self._does()


class Script(ModuleType):
    """A generated script with three configurations."""

    def __init__(self, **does: Callable[[], None]) -> None:
        super().__init__("script")
        self.CONFIGS = {name: {"name": name} for name in NAMES}
        self._does = does

    def scratch(self, config: Any, size: Any, num_sms: int) -> tuple[int, int]:
        return 0, 0

    def calls(self, config: Any, size: Any, operands: Any, scratch: Any, num_sms: int) -> list[Any]:
        does = self._does.get(config["name"], lambda: None)
        return [(f"{config['name']}_kernel", Kernel(does), (1,), (), {})]


class IdlingCpu(Cpu):
    """Its clocks fall in a pause, as a GPU's do."""

    idles = True


class Launcher:
    """A launcher's insides on the CPU: nothing is waited for, since nothing runs elsewhere.

    support: what a launch of one of the measurement's own kernels comes to.
    """

    def __init__(
        self,
        folder: Path,
        *,
        deadline: float = 0.0,
        process: int = 0,
        support: Callable[[str], None] = lambda symbol: None,
        **method: Any,
    ) -> None:
        self._journal, self.stop = io.StringIO(), folder / STOP_FILE
        how = Method(warmup_calls=1, timed_calls=3, **method)
        plan = Plan(SCREEN, (), (), how, device="cpu", deadline=deadline, process=process)
        kernels = {symbol: partial(support, symbol) for symbol in SYMBOLS}
        kernels[LONG_FLUSH] = partial(support, FLUSH_SYMBOL)
        language: Any = SimpleNamespace(support_calls=lambda flush_bytes, device: kernels)
        self.bench = Bench(plan, Journal(self._journal), self.stop, language, IdlingCpu())

    def journal(self) -> list[Event]:
        return [event_of(line, "journal") for line in self._journal.getvalue().splitlines()]

    def events(self, *kinds: str) -> list[tuple[str, str]]:
        rows = [json.loads(line) for line in self._journal.getvalue().splitlines()]
        return [(row["event"], row["name"]) for row in rows if row["event"] in kinds]

    def stopped_early(self) -> dict[str, bool]:
        rows = [json.loads(line) for line in self._journal.getvalue().splitlines()]
        return {row["name"]: row["early_stopped"] for row in rows if row["event"] == "end"}

    def calls(self) -> list[tuple[str, list[str], bool]]:
        rows = [json.loads(line) for line in self._journal.getvalue().splitlines()]
        return [(row["name"], row["symbols"], row["warm"]) for row in rows if row["event"] == "call"]


def work(*names: str, **fields: Any) -> Work:
    return Work(SIZE, tuple((0, name) for name in names), **fields)


def test_finals_run_in_rounds_each_in_another_order_and_one_kernel_twice(tmp_path: Path) -> None:
    launcher = Launcher(tmp_path)
    finals(launcher.bench, 0, work(*NAMES, again="b", rounds=8), [Script()])
    assert set(launcher.events("end")) == {("end", name) for name in (*NAMES, AA_TEST)}
    timed = [name for name, _, warm in launcher.calls() if not warm]
    rounds = [timed[start : start + 4] for start in range(0, len(timed), 4)]
    assert len(rounds) == 8 and all(sorted(one) == sorted((*NAMES, AA_TEST)) for one in rounds)
    assert len({tuple(one) for one in rounds}) > 3
    assert {tuple(symbols) for name, symbols, _ in launcher.calls() if name == AA_TEST} == {("b_kernel",)}


@pytest.mark.parametrize(("us_a_call", "rests"), [(0, 0), (1000, 1)])
def test_the_gpu_rests_after_a_size_of_long_calls_only(
    us_a_call: int, rests: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s, slept = [0.0], list[float]()

    def runs() -> None:
        now_s[0] += us_a_call / 1e6

    clock = SimpleNamespace(perf_counter=lambda: now_s[0], sleep=slept.append, time=time.time)
    monkeypatch.setattr(bench_module, "time", clock)
    monkeypatch.setattr(timing_module, "time", clock)
    launcher = Launcher(tmp_path)
    finals(launcher.bench, 0, work("a", rounds=5), [Script(a=runs)])
    assert slept == []
    finals(launcher.bench, 1, work("a", rounds=5), [Script(a=runs)])
    since_s = us_a_call / 1e6  # the first call of the next size
    assert slept == pytest.approx([bench_module.REST_S - since_s] * rests)


class SimulatedGpu(IdlingCpu):
    """A queue in simulated time: what the host launches starts when the GPU is free. waits_us: how long the GPU had
    nothing to do before each launch."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = self.free_at_s = 0.0
        self.waits_us: list[tuple[str, float]] = []

    def launched(self, name: str, host_us: float, gpu_us: float) -> None:
        self.now_s += host_us / 1e6
        self.waits_us.append((name, max(0.0, self.now_s - self.free_at_s) * 1e6))
        self.free_at_s = max(self.free_at_s, self.now_s) + gpu_us / 1e6

    def wait(self) -> None:
        self.now_s = max(self.now_s, self.free_at_s)


class ThreeKernels(Script):
    """Calls of three kernels, which the host takes longer to launch than the GPU to run."""

    def calls(self, config: Any, size: Any, operands: Any, scratch: Any, num_sms: int) -> list[Any]:
        does = self._does[config["name"]]
        return [(f"{config['name']}_{number}", Kernel(does), (1,), (), {}) for number in range(3)]


@pytest.mark.parametrize(("flush_us", "full"), [(50.0, True), (5.5, False)])
def test_no_wait_for_the_host_is_in_the_span_of_a_call(
    flush_us: float, full: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The journal says of each timed call whether that is so."""
    gpu = SimulatedGpu()
    clock = SimpleNamespace(perf_counter=lambda: gpu.now_s, sleep=lambda s: None, time=time.time)
    monkeypatch.setattr(bench_module, "time", clock)
    monkeypatch.setattr(timing_module, "time", clock)
    monkeypatch.setattr(bench_module, "SPIN_UP_FLUSHES", 100)
    launcher = Launcher(tmp_path, support=lambda symbol: gpu.launched(symbol, 5.0, flush_us), flush_bytes=4096)
    launcher.bench.processor = gpu
    launcher.bench.spin_up()
    gpu.waits_us.clear()
    finals(launcher.bench, 0, work("a", rounds=5), [ThreeKernels(a=lambda: gpu.launched("kernel", 40.0, 3.0))])
    timed = [call for call in calls_of(launcher.journal()) if not call.warm]
    assert len(timed) == 5 and [call.queued for call in timed] == [full] * 5
    waits = [us for name, us in gpu.waits_us if name == "kernel"][-15:]
    assert (max(waits) == 0.0) == full


@pytest.mark.parametrize("stage", [screen, finals])
def test_the_journal_explains_every_row_of_the_trace_flushes_included(
    stage: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a spin-up before the profiler records, one after, and those of the rests between two sizes."""
    monkeypatch.setattr(bench_module, "SPIN_UP_FLUSHES", 3 * LONG_FLUSH_SWEEPS)
    monkeypatch.setattr(bench_module, "REST_S", 0)
    monkeypatch.setattr(bench_module, "TIRING_CALL_US", -1)
    launched = list[str]()
    script = Script(**{name: partial(launched.append, f"{name}_kernel") for name in NAMES})
    launcher = Launcher(tmp_path, support=launched.append, flush_bytes=4096)
    launcher.bench.spin_up()
    launched.clear()
    launcher.bench.begin_recording()
    launcher.bench.spin_up()
    for index in range(2):
        stage(launcher.bench, index, work(*NAMES), [script])
    calls = calls_of(launcher.journal())
    assert [name for call in calls for name in call.rows] == launched
    spun = 3 * LONG_FLUSH_SWEEPS + 3 * (stage is finals)  # the first are timed one by one
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


def test_screening_stops_between_two_configurations(tmp_path: Path) -> None:
    launcher = Launcher(tmp_path)
    screen(launcher.bench, 0, work(*NAMES), [Script(b=lambda: launcher.stop.touch())])
    assert launcher.events("begin", "end") == [("begin", "a"), ("end", "a"), ("begin", "b"), ("end", "b")]
    assert launcher.bench.stopped


@pytest.mark.parametrize(("seconds_left", "begun"), [(None, 3), (1e6, 3), (-1.0, 0)])
def test_nothing_is_screened_after_the_deadline(seconds_left: float | None, begun: int, tmp_path: Path) -> None:
    launcher = Launcher(tmp_path, deadline=0.0 if seconds_left is None else time.time() + seconds_left)
    screen(launcher.bench, 0, work(*NAMES), [Script()])
    assert len(launcher.events("begin")) == begun


def test_every_size_has_its_part_of_the_time_until_the_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SimpleNamespace(now_s=1000.0)
    monkeypatch.setattr(bench_module, "time", SimpleNamespace(time=lambda: clock.now_s, perf_counter=time.perf_counter))

    def takes_10_s() -> None:
        clock.now_s += 10

    launcher = Launcher(tmp_path, deadline=1060.0)
    launcher.bench.share_time(3, 5)
    screen(launcher.bench, 0, work(*NAMES), [Script(a=takes_10_s, b=takes_10_s)])
    launcher.bench.share_time(2, 2)
    screen(launcher.bench, 1, work("b", "c"), [Script()])
    assert [name for _, name in launcher.events("end")] == ["a", "b", "c"]


@pytest.mark.parametrize(("seconds_left", "rounds"), [(None, 20), (1e6, 20), (-1.0, LEAST_ROUNDS)])
def test_finals_have_their_least_rounds_after_the_deadline(
    seconds_left: float | None, rounds: int, tmp_path: Path
) -> None:
    deadline = 0.0 if seconds_left is None else time.time() + seconds_left
    launcher = Launcher(tmp_path, deadline=deadline)
    finals(launcher.bench, 0, replace(work("a"), rounds=20), [Script()])
    assert launcher.events("end") == [("end", "a")]
    assert sum(not warm for _, _, warm in launcher.calls()) == rounds


@pytest.mark.parametrize(("best_us", "timed"), [(0.0, 3), (1e6, 3), (10.0, 2)])
def test_a_clear_loser_against_earlier_rounds_is_called_twice(
    best_us: float, timed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The host waits 1 ms for each call."""
    clock = iter(range(1000))
    monkeypatch.setattr(
        "gemm_tuner.launch.bench.time",
        SimpleNamespace(perf_counter=lambda: next(clock) / 1000, time=time.time),
    )
    launcher = Launcher(tmp_path)
    screen(launcher.bench, 0, replace(work("a"), best_us=best_us), [Script()])
    assert sum(not warm for _, _, warm in launcher.calls()) == timed


def test_one_stall_of_the_host_stops_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The host waits 1 us for each call, and 9 s for the first of b; c is slow."""
    waited_us = iter([1.0, 9e6, 1.0, 900.0, 800.0])
    monkeypatch.setattr(Bench, "timed_call_us", lambda bench, one: (bench.call(one, warm=False), next(waited_us))[1])
    launcher = Launcher(tmp_path)
    screen(launcher.bench, 0, work(*NAMES, best_us=10.0), [Script()])
    assert launcher.stopped_early() == {"a": False, "b": False, "c": True}
    timed = [name for name, _, warm in launcher.calls() if not warm]
    assert [timed.count(name) for name in NAMES] == [3, 3, 2]


def test_each_round_is_journalled_before_it_begins(tmp_path: Path) -> None:
    launcher = Launcher(tmp_path)
    finals(launcher.bench, 0, work("a", "b"), [Script()])
    rows = [json.loads(line) for line in launcher._journal.getvalue().splitlines()]
    kinds = [row.get("number", "call") for row in rows if row["event"] in ("round", "call")][2:]
    assert kinds == [0, "call", "call", 1, "call", "call", 2, "call", "call", 3, "call", "call"]


def test_a_round_that_fails_is_attributed_to_none_yet(tmp_path: Path) -> None:
    left = iter([None] * 3)

    def fails_later() -> None:
        if next(left, "none") == "none":
            raise RuntimeError("unspecified launch failure")

    launcher = Launcher(tmp_path)
    with pytest.raises(StickyError, match="unspecified launch failure"):
        finals(launcher.bench, 0, work("a", "b"), [Script(b=fails_later)])
    assert launcher.events("fail") == launcher.events("end") == []


@pytest.mark.parametrize("words", ["CUDA error: uncorrectable ECC error encountered", "CUDA error: unknown error"])
def test_a_lost_gpu_costs_one_configuration(words: str, tmp_path: Path) -> None:
    """The process ends: all later calls would fail, and be taken for faults of what they launch."""

    def loses_the_gpu() -> None:
        raise RuntimeError(words)

    launcher = Launcher(tmp_path)
    with pytest.raises(StickyError):
        screen(launcher.bench, 0, work(*NAMES), [Script(b=loses_the_gpu)])
    assert launcher.events("fail") == [("fail", "b")] and ("begin", "c") not in launcher.events("begin")


class Recorded(Cpu):
    """Notes in ``heard`` when recording begins and is ended."""

    def __init__(self, heard: list[str]) -> None:
        self.heard = heard

    def start_recording(self) -> None:
        self.heard.append("recording")

    def stop_recording(self) -> None:
        self.heard.append("end of recording")


def run_recorded(
    script: Script, plan: Plan, heard: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> list[dict[str, Any]]:
    """The rows of a plan's journal, also of one that loses the GPU."""
    monkeypatch.setattr(main_module, "processor_of", lambda device: Recorded(heard))
    language: Any = SimpleNamespace(support_calls=lambda flush_bytes, device: dict.fromkeys(SYMBOLS, lambda: None))
    written = io.StringIO()
    with contextlib.suppress(StickyError):
        main_module.run(plan, Journal(written), [script], folder / STOP_FILE, language, None)
    return [json.loads(line) for line in written.getvalue().splitlines()]


@pytest.mark.parametrize("stage", [SCREEN, FINALS])
@pytest.mark.parametrize("loads_when_called", [True, False])
def test_what_the_first_call_loads_is_loaded_before_recording_begins(
    loads_when_called: bool, stage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The journal has no call of that: none is in the trace. One that fails there fails in its stage. The reference is
    loaded as well, and no failure is its own. What is so loaded is unloaded by the process's end, after recording."""
    heard: list[str] = []

    def broken() -> None:
        heard.append("b")
        raise ValueError("broken")

    script = Script(a=lambda: heard.append("a"), b=broken, c=lambda: heard.append("c"))
    script.LOADS_WHEN_CALLED = loads_when_called  # type: ignore[attr-defined]
    method = Method(warmup_calls=0, timed_calls=1)
    screened_first: dict[str, Any] = {"reference": ((0, "c"),), "reference_us": 1.0}
    plan = Plan(stage, (), (work("a", "b", **screened_first),), method, device="cpu", capture_range=True)
    rows = run_recorded(script, plan, heard, tmp_path, monkeypatch)
    before = heard[: heard.index("recording")]
    assert before == (["a", "b", "c"] if loads_when_called else [])
    assert [at for at, one in enumerate(heard) if one == "end of recording"] == [len(heard) - 1] * loads_when_called
    assert sum(row["event"] == "call" for row in rows) == heard[len(before) :].count("a")
    assert [row["name"] for row in rows if row["event"] == "fail"] == ["b"]


def test_a_gpu_lost_while_kernels_are_loaded_costs_the_one_that_lost_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[str] = []

    def loses_the_gpu() -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    script = Script(a=loses_the_gpu, b=lambda: heard.append("b"))
    script.LOADS_WHEN_CALLED = True  # type: ignore[attr-defined]
    plan = Plan(SCREEN, (), (work("a", "b"),), Method(), device="cpu", capture_range=True)
    rows = run_recorded(script, plan, heard, tmp_path, monkeypatch)
    assert [(row["name"], row["status"]) for row in rows if row["event"] == "fail"] == [("a", "crashed")]
    assert heard == []

"""What a launcher loads before its profiler records."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from launcher_on_cpu import SYMBOLS, Script, work
from samples import problem

from gemm_tuner.launch import loading as loading_module
from gemm_tuner.launch import main as main_module
from gemm_tuner.launch import opening as opening_module
from gemm_tuner.launch.failures import StickyError
from gemm_tuner.launch.journal import Journal
from gemm_tuner.launch.loading import LoadedAhead, Loading
from gemm_tuner.launch.opening import load_ahead
from gemm_tuner.launch.plan import FINALS, SCREEN, STOP_FILE, Method, Plan
from gemm_tuner.launch.processor import Cpu
from gemm_tuner.launch.stopwatch import Stopwatch


class Recorded(Cpu):
    """Notes in ``heard`` when recording begins."""

    def __init__(self, heard: list[str]) -> None:
        self.heard = heard

    def start_recording(self) -> None:
        self.heard.append("recording")


def run_recorded(
    script: Script, plan: Plan, heard: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> list[dict[str, Any]]:
    """The rows of a plan's journal, also of one that loses the GPU."""
    monkeypatch.setattr(main_module, "processor_of", lambda device: Recorded(heard))
    language: Any = SimpleNamespace(support_calls=lambda flush_bytes, device: dict.fromkeys(SYMBOLS, lambda *_: None))
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
    loaded as well, and no failure is its own."""
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


def failing(error: Exception, *, times: int, heard: list[str]) -> Callable[[], None]:
    """A kernel whose first launches fail."""
    left = [error] * times

    def does() -> None:
        heard.append("failed" if left else "loaded")
        if left:
            raise left.pop()

    return does


@pytest.mark.parametrize("error", [RuntimeError("CUBLAS_STATUS_ALLOC_FAILED"), MemoryError("operands need 90 GiB")])
def test_what_failed_is_loaded_again(error: Exception) -> None:
    """Several launchers may load at once before their turns; in its turn each has the memory to itself. Libraries have
    many words for a lack of it."""
    heard: list[str] = []
    processor = Recorded(heard)
    script = Script(a=failing(error, times=1, heard=heard), b=lambda: heard.append("b"))
    script.LOADS_WHEN_CALLED = True  # type: ignore[attr-defined]
    works = (replace(work("a"), rounds=1), replace(work("b"), rounds=2))
    plan = Plan(FINALS, (), works, Method(), device="cpu", capture_range=True)
    written = io.StringIO()
    loading = Loading(plan, Journal(written), [script], processor, Stopwatch())
    loading.load(last=False)
    assert heard == ["failed", "b"] and not loading.done
    loading.load(last=True)
    assert heard[2:] == ["loaded", "recording"] and loading.done
    events = [(row["event"], row["name"]) for row in map(json.loads, written.getvalue().splitlines())]
    assert events == [(event, name) for name in "aba" for event in ("begin", "ran")]  # nothing runs while it waits


def test_what_never_fits_is_left_to_the_stage() -> None:
    heard: list[str] = []
    script = Script(a=failing(MemoryError("operands need 90 GiB"), times=3, heard=heard))
    script.LOADS_WHEN_CALLED = True  # type: ignore[attr-defined]
    plan = Plan(FINALS, (), (work("a"),), Method(), device="cpu", capture_range=True)
    loading = Loading(plan, Journal(io.StringIO()), [script], Recorded(heard), Stopwatch())
    for last in (False, True, True):
        loading.load(last=last)
    assert heard == ["failed", "failed", "recording"]


def test_a_profiler_that_finds_no_memory_records_in_the_turn() -> None:
    """Else a process would time everything, and its trace have nothing of it."""
    heard: list[str] = []

    class Full(Recorded):
        def start_recording(self) -> None:
            super().start_recording()
            if len(heard) == 1:
                raise RuntimeError("CUDA error: out of memory")

    loading = Loading(
        Plan(FINALS, (), (), Method(), device="cpu", capture_range=True),
        Journal(io.StringIO()), [], Full(heard), Stopwatch(),
    )  # fmt: skip
    with pytest.raises(RuntimeError, match="out of memory"):
        loading.load(last=False)
    loading.load(last=True)
    assert heard == ["recording"] * 2 and loading.done


def vendor_calls(call: Callable[[Any], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets the vendor library's call for a problem be this one."""
    workload: Any = SimpleNamespace(
        has_baseline_call=True,
        require_memory=lambda *_: None,
        operands=lambda *_: [None],
        baseline_call=lambda problem, operands: lambda: call(problem),
    )
    monkeypatch.setattr(loading_module, "workload_of", lambda kind: workload)


@pytest.mark.parametrize("loads_when_called", [True, False])
def test_what_is_loaded_before_the_plan_comes_is_not_loaded_again(
    loads_when_called: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what must not be recorded is loaded before the recording, which then begins with the plan."""
    heard: list[str] = []
    vendor_calls(lambda problem: heard.append("vendor"), monkeypatch)
    monkeypatch.setattr(opening_module, "processor_of", lambda device: Recorded(heard))
    script, ahead = Script(a=lambda: heard.append("a")), LoadedAhead()
    script.LOADS_WHEN_CALLED = loads_when_called  # type: ignore[attr-defined]
    language: Any = SimpleNamespace(support_calls=lambda flush_bytes, device: {})
    plan = Plan(FINALS, (), (work(vendor=True),), Method(), device="cpu", capture_range=True)
    load_ahead(plan, [script], language, ahead)
    assert heard == (["vendor"] if loads_when_called else ["vendor", "recording"])
    loading = Loading(plan, Journal(io.StringIO()), [script], Recorded(heard), Stopwatch(), ahead)
    loading.load(last=False)
    assert heard == ["vendor", "recording"] and loading.done


def test_the_largest_size_is_loaded_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others then find memory that needs no call of the driver, which launchers make one after the other."""
    called: list[Any] = []
    vendor_calls(called.append, monkeypatch)
    sizes = [problem(64, 64, 64), problem(4096, 4096, 4096), problem(512, 512, 512)]
    works = tuple(replace(work(vendor=True), problem=size) for size in sizes)
    plan = Plan(FINALS, (), works, Method(), device="cpu")
    Loading(plan, Journal(io.StringIO()), [Script()], Cpu(), Stopwatch()).load(last=True)
    assert called == [sizes[1], sizes[2], sizes[0]]


@pytest.mark.parametrize("loads_when_called", [True, False])
def test_a_recording_that_has_begun_is_not_for_what_is_loaded_when_called(
    loads_when_called: bool, tmp_path: Path
) -> None:
    """Neither kernels nor, where another GPU's sizes come, the vendor library's: the process ends without a journal,
    and another one has its plan."""
    path = tmp_path / "plan.json"
    (tmp_path / "script.py").write_text(f"CONFIGS = {{}}\nLOADS_WHEN_CALLED = {loads_when_called}\n")
    works = () if loads_when_called else (replace(work(vendor=True), entries=()),)
    Plan(FINALS, ("script.py",), works, Method(), device="cpu").write(path)
    assert main_module.main(["--plan", str(path)], str(tmp_path), ahead=LoadedAhead(records=True)) == 0
    assert not (tmp_path / "journal.jsonl").exists()

"""Functions that can be imported run in processes of their own: crashes and hangs cost one configuration."""

from __future__ import annotations

import functools
import re
import sys
from pathlib import Path
from typing import Any

import live_functions
import msgspec
import numpy as np
import pandas as pd
import pytest
from hang_clock import LIMIT_S, NOTES, HangClock
from nvml_recording import h200, install

import gemm_tuner as gt
from gemm_tuner import profilers
from gemm_tuner.core.errors import EnvironmentFault, UserError
from gemm_tuner.core.markers import BEGIN_SYMBOL, END_SYMBOL, FLUSH_SYMBOL
from gemm_tuner.core.records import Status, Verified
from gemm_tuner.profilers.base import TRACE_COLUMNS
from gemm_tuner.profilers.clock import Clock
from gemm_tuner.profilers.nsys import Nsys
from gemm_tuner.surface import tuner
from gemm_tuner.surface.finals_samples import samples_of_trace
from gemm_tuner.surface.job import Named, named
from gemm_tuner.system import processes

# What is interrupted in one call, or in four, is no slower for it.
MEDIANS = gt.Effort(rounds=9, processes=1, early_stop_ratio=0)
EFFORT = gt.Effort(timeout_s=LIMIT_S, rounds=6, processes=2, early_stop_ratio=0)


def test_what_crashes_hangs_or_is_wrong_costs_itself_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(NOTES, str(tmp_path / "hangs"))
    monkeypatch.setattr(processes, "time", HangClock(tmp_path / "hangs"))
    kinds = [("good", 50), ("crash", 1), ("hang", 1), ("wrong", 1), ("good", 1)]
    tuned = gt.tune_callables(
        [{"kind": kind, "times": times} for kind, times in kinds],
        live_functions.build,
        check=gt.Check(live_functions.reference),
        baselines={"slow": live_functions.baseline},
        profiler="clock",
        effort=EFFORT,
        output_dir=tmp_path / "tuned",
        seed=3,
    )
    found = {(row.config["kind"], row.config["times"]): row for row in tuned.rows if not row.baseline}
    assert {key: row.status for key, row in found.items()} == {
        ("good", 1): Status.OK, ("good", 50): Status.OK, ("crash", 1): Status.CRASHED, ("hang", 1): Status.TIMEOUT,
        ("wrong", 1): Status.WRONG,
    }  # fmt: skip
    assert "SIGSEGV" in found["crash", 1].reason and "nothing moved" in found["hang", 1].reason
    assert tuned.config == {"kind": "good", "times": 1} and tuned.winner.verified is Verified.TRUE
    assert tuned.method == tuned.winner.method == "clock" and found["good", 50].method == "in_process"
    assert len(tuned.winner.samples_us) == 6 and isinstance(tuned.kernel(), float)
    slow = next(row for row in tuned.rows if row.baseline)
    assert (slow.us or 0) > tuned.latency_us and tuned.noise_pct is not None
    assert tuned.folder is not None and "crash" in (tuned.folder / "tune.log").read_text()


def test_without_a_reference_those_that_agree_are_right() -> None:
    configs = [{"kind": kind, "times": times} for kind, times in (("wrong", 1), ("good", 2), ("good", 1))]
    tuned = gt.tune_callables(
        configs, live_functions.build, profiler="clock", effort=gt.Effort(rounds=2, processes=1), output_dir=None
    )
    assert {row.config["kind"]: row.verified for row in tuned.rows} == {
        "good": Verified.AGREED, "wrong": Verified.FALSE,
    }  # fmt: skip


def test_functions_and_their_inputs_are_compared_in_other_processes() -> None:
    given = [live_functions.fifty_times, live_functions.once], live_functions.inputs
    found = gt.benchmark(*given, profiler="clock", rounds=9, processes=1, reference=live_functions.once)
    assert [row.name for row in found.rows] == ["once", "fifty_times"] and found.kernel is live_functions.once
    assert {(row.method, row.verified) for row in found.rows} == {("clock", Verified.TRUE)}
    for functions, inputs, why in (
        ([live_functions.once], [np.ones(3)], "inputs.*it holds a ndarray"),
        ([lambda x: x], live_functions.inputs, "<lambda> cannot be rebuilt"),
    ):
        with pytest.raises(UserError, match=why):
            gt.benchmark(functions, inputs, profiler="clock")


def test_aiters_functions_reach_another_process_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[bytes] = []

    def tune_external(configs: dict[str, Any], build: Any, **more: Any) -> gt.Tuned:
        sent.append(msgspec.json.encode(named(build, "build")))
        row = gt.Row(configs["times0"], "times0", Status.OK)
        return gt.Tuned("", (row,), row, None, frozenset(), "clock", 0.0)

    monkeypatch.setattr(tuner, "tune_external", tune_external)
    make, space = functools.partial(live_functions.make_run_and_gt, 1000), [{"times": 99}, {"times": 0}]
    assert gt.tune_kernel(space, make, live_functions.use, profiler="nsys") == {"times": 0, "used": 1}
    call = msgspec.json.decode(sent[0], type=Named).load()({"times": 4})
    assert call.details == {"used used": 5} and call.run() == call.check.reference
    with pytest.raises(UserError, match=r"make_run_and_gt_fn cannot be rebuilt.*lambda"):
        gt.tune_kernel(space, lambda config: make(config), profiler="clock", output_dir=None)


def test_a_function_that_tunes_itself_in_other_processes() -> None:
    gemm = gt.callables(
        live_functions.build_product, {"times": [40, 1], "off": [0.0, 1.0]}, reference=live_functions.product,
        profiler="clock", effort=MEDIANS, output_dir=None,
    )  # fmt: skip
    a, b = np.ones((8, 16), np.float32), np.ones((16, 8), np.float32)
    assert np.array_equal(gemm(a, b, 2), a @ b)
    tuned = gemm.tune(a, b, 2)
    assert tuned.config == {"times": 1, "off": 0.0} and tuned.winner.verified is Verified.TRUE
    assert [row.status for row in tuned.rows if row.config["off"]] == [Status.WRONG] * 2
    assert gemm.tunings == 1 and gemm.compiles == 1
    for args, why in (((a, b, np.arange(3)), "argument 2 .*int64"), ((a, object(), 2), "argument 1 .*object")):
        with pytest.raises(UserError, match=why):
            gemm(*args)


def local_build(config: dict[str, Any]) -> Any:
    return None


local_build.__module__ = "__main__"


@pytest.mark.parametrize(
    ("why", "changes"),
    [
        ("build cannot be rebuilt.*<lambda> is a lambda", {"build": lambda config: None}),
        ("build cannot.*local_build is of the main script", {"build": local_build}),
        ("build cannot.*it holds a ndarray", {"build": functools.partial(live_functions.build_with, np.zeros(1))}),
        ("reference cannot.*it is a ndarray", {"check": gt.Check(np.zeros(1))}),
        ("configuration .* cannot.*it holds a Float32DType", {"configs": [{"type": np.dtype("f4")}]}),
        ("manual cannot.*<lambda>", {"check": gt.Check(manual=lambda outputs: True)}),
        ("baseline theirs cannot.*<lambda>", {"baselines": {"theirs": lambda: None}}),
    ],
)
def test_what_cannot_be_rebuilt_is_named(why: str, changes: dict[str, Any]) -> None:
    given = {
        "configs": [{"tile": (1, 2)}],
        "build": functools.partial(live_functions.build_with, 8),
        "profiler": "clock",
        "output_dir": None,
    }
    with pytest.raises(UserError, match=why):
        gt.tune_callables(**{**given, **changes})


class Recorded(Nsys):
    """A trace as nsys gives it."""

    def __init__(self, rows: list[tuple[str, float]]) -> None:
        self.rows = rows

    def read(self, out_dir: Path) -> pd.DataFrame:
        full = [(name, number, us * 1e3, "", "7") for number, (name, us) in enumerate(self.rows)]
        return pd.DataFrame(full, columns=list(TRACE_COLUMNS))


@pytest.mark.parametrize("how", [{"profiler": "nsys"}, {"isolate": True}])
def test_a_gpu_for_one_process_alone_is_named(how: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller's process is on it already."""
    install(monkeypatch, h200(ComputeMode=3))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    configs = [{"kind": "good", "times": 1}]
    with pytest.raises(EnvironmentFault, match="its compute mode is exclusive"):
        if "profiler" in how:
            gt.tune_callables(configs, live_functions.build, output_dir=None, **how)
        else:
            gt.autotune(configs=[{"config": one} for one in configs], **how)(live_functions.build)()


def test_a_call_takes_what_its_kernels_between_the_markers_take() -> None:
    def call(*kernels: tuple[str, float]) -> list[tuple[str, float]]:
        return [("restore", 3.0), (FLUSH_SYMBOL, 50.0), (BEGIN_SYMBOL, 1.0), *kernels, (END_SYMBOL, 1.0)]

    plain, split = [("gemm", 10.0)], [("gemm", 6.0), ("reduce", 2.0)]
    rows = [*call(*plain), *call(*split), *call(*split), *call(("gemm", 12.0))]
    found = samples_of_trace(Recorded(rows), Path(), ["plain", "split", "split", "plain"])
    assert found == {"plain": (10.0, 12.0), "split": (8.0, 8.0)}


class Broken(Clock):
    """A profiler that is installed and does not work."""

    name = "broken"

    def command(self, argv: list[str], out_dir: Path) -> list[str]:
        return [sys.executable, "-c", "import sys; sys.exit('no permission to profile')"]


class Empty(Clock):
    """A profiler whose recording cannot be converted."""

    name = "empty"

    def export_commands(self, out_dir: Path) -> list[list[str]]:
        return [[sys.executable, "-c", "import sys; sys.exit('no kernels recorded')"]]


def test_finals_go_on_under_the_next_profiler_where_one_does_not_work(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    configs = [{"kind": "good", "times": times} for times in (50, 1)]
    run = {"effort": gt.Effort(rounds=2, processes=1), "output_dir": tmp_path}
    monkeypatch.setattr(profilers, "PROFILERS", (Broken(), Empty(), Clock()))
    monkeypatch.setattr(profilers, "AUTO_ORDER", {"cpu": ("broken", "empty", "clock")})
    with pytest.warns(UserWarning) as warned:
        tuned = gt.tune_callables(configs, live_functions.build, profiler="auto", **run)
    assert [re.sub(":.*", "", str(one.message)) for one in warned] == [
        "finals go on under empty, since they do not work under broken",
        "finals go on under clock, since they do not work under empty",
    ]
    assert "no permission to profile" in str(warned[0].message) and "no kernels recorded" in str(warned[1].message)
    assert tuned.method == tuned.winner.method == "clock"
    with pytest.warns(UserWarning, match=r"no finals, since .* under broken: .*no permission to profile"):
        tuned = gt.tune_callables(configs[1:], live_functions.build, profiler="broken", **run)
    assert tuned.winner.method == "in_process", "what was screened is kept"

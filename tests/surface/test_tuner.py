"""Live functions of the CPU are tuned in this process: errors, wrong results, ties, baselines, files."""

from __future__ import annotations

import csv
import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from said_times import RIGHT, Said
from samples import ROOT

import gemm_tuner as gt
from gemm_tuner.core.errors import UserError
from gemm_tuner.core.records import Status, Verified
from gemm_tuner.store import results
from gemm_tuner.surface.clocks import HostClock


def tune(configs: list[dict[str, Any]], build: Callable[..., Any], **more: Any) -> gt.Tuned:
    return gt.tune_callables(configs, build, output_dir=None, effort=gt.Effort(early_stop_ratio=0), **more)


class CompilationError(Exception):
    """Named as Triton's."""


def test_the_fastest_right_one_wins_and_each_fault_costs_one_row() -> None:
    clock = Said()

    def build(config: dict[str, Any]) -> Callable[[], Any]:
        kind = config["kind"]
        if kind == "no build":
            raise RuntimeError("cannot be built")
        if kind == "no compile":

            def launch() -> Any:
                raise CompilationError("at 3:14")

            return launch
        if kind == "too large":

            def run() -> Any:
                raise MemoryError("out of memory")

            return run
        result = {"wrong": RIGHT + 1, "nan": np.full(4, np.nan), "short": RIGHT[:2]}.get(kind, RIGHT)
        return clock.call({"fast": 10.0, "slow": 12.0}.get(kind, 1.0), result)

    kinds = ["slow", "no build", "no compile", "wrong", "fast", "too large", "nan", "short"]
    tuned = tune([{"kind": kind} for kind in kinds], build, check=gt.Check(RIGHT), clock=clock)
    statuses = {row.config["kind"]: row.status for row in tuned.rows}
    assert tuned.config == {"kind": "fast"} and tuned.latency_us == pytest.approx(10.0)
    assert statuses == {
        "fast": Status.OK, "slow": Status.OK, "no build": Status.COMPILE_ERROR, "no compile": Status.COMPILE_ERROR,
        "too large": Status.OUT_OF_RESOURCES,
        "wrong": Status.WRONG, "nan": Status.WRONG, "short": Status.WRONG,
    }  # fmt: skip
    assert {row.verified for row in tuned.rows if row.status is Status.OK} == {Verified.TRUE}
    assert "cannot be built" in next(row.reason for row in tuned.rows if row.config["kind"] == "no build")
    assert [row.config["kind"] for row in tuned.rows][:2] == ["fast", "slow"]
    assert tuned.method == "in_process" and tuned.clock == "said" and tuned.kernel() is RIGHT


def test_of_configurations_as_fast_the_simpler_one_is_taken() -> None:
    clock = Said()
    configs = [{"BLOCK": 64}, {"BLOCK": 16}, {"BLOCK": 32}]
    tuned = tune(configs, lambda config: clock.call(9.0 if config["BLOCK"] == 32 else 5.0), clock=clock)
    assert tuned.config == {"BLOCK": 16} and tuned.ties == {"BLOCK64", "BLOCK16"}


def test_baselines_stand_in_the_finals_and_are_never_chosen() -> None:
    clock = Said()
    tuned = tune([{"B": 1}], lambda config: clock.call(5.0), clock=clock, baselines={"vendor": clock.call(2.0)})
    vendor = next(row for row in tuned.rows if row.baseline)
    assert tuned.config == {"B": 1} and vendor.us == pytest.approx(2.0) and vendor.status is Status.OK
    assert tuned.noise_pct == 0.0 and len(tuned.rows) == 2
    noisy = Said()
    times = itertools.cycle([4.0, 5.0, 6.0])

    def run() -> Any:
        noisy.us = next(times)
        return RIGHT

    assert (tune([{"B": 1}, {"B": 2}], lambda config: run, clock=noisy).noise_pct or 0.0) > 1.0
    assert tune([{"B": 1}], lambda config: clock.call(5.0), clock=clock).noise_pct is None


def test_without_a_reference_the_largest_group_that_agrees_is_right() -> None:
    clock = Said()
    tuned = tune(
        [{"B": b} for b in (1, 2, 3)], lambda config: clock.call(config["B"], RIGHT + (config["B"] == 1)), clock=clock
    )
    assert tuned.config == {"B": 2} and tuned.winner.verified is Verified.AGREED
    assert next(row.status for row in tuned.rows if row.config["B"] == 1) is Status.WRONG
    torn = tune([{"B": b} for b in range(4)], lambda config: clock.call(1.0, RIGHT + config["B"] // 2), clock=clock)
    assert {(row.status, row.verified) for row in torn.rows} == {(Status.OK, Verified.FALSE)}
    alone = tune([{"B": 1}], lambda config: clock.call(1.0), clock=clock)
    assert alone.winner.verified is Verified.FALSE


@pytest.mark.parametrize(("wrong", "status"), [(9, Status.OK), (11, Status.WRONG)])
def test_a_share_of_wrong_elements_may_be_let_pass(wrong: int, status: Status) -> None:
    clock = Said()
    result = np.zeros(1000)
    result[:wrong] = 5
    check = gt.Check(np.zeros(1000), max_mismatched_ratio=0.01)
    (row,) = tune([{}], lambda config: clock.call(1.0, result), clock=clock, check=check).rows
    assert row.status is status and row.mismatched_ratio == pytest.approx(wrong / 1000)


def refuses(outputs: Any) -> bool:
    return False


def raises(outputs: Any) -> None:
    raise AssertionError("not so")


def test_a_check_by_hand_or_none() -> None:
    clock = Said()

    def row(check: gt.Check) -> gt.Row:
        return tune([{}], lambda config: clock.call(1.0), clock=clock, check=check).rows[0]

    assert row(gt.Check(manual=refuses)).status is Status.WRONG
    assert "not so" in row(gt.Check(manual=raises)).reason
    assert row(gt.Check(manual=lambda outputs: None)).verified is Verified.TRUE
    skipped = row(gt.Check(RIGHT + 1, skip=True))
    assert skipped.status is Status.OK and skipped.verified is Verified.FALSE


def test_outputs_hold_nan_before_the_checked_call_and_before_restores_each() -> None:
    out, calls = np.zeros(4), []

    def run() -> None:
        calls.append("run")
        out[:3] = RIGHT[:3]  # the last element is never written

    call = gt.Call(run, outputs=[out], before=lambda: calls.append("before"))
    (row,) = tune([{}], lambda config: call, check=gt.Check(np.array([0.0, 1, 2, 0]))).rows
    assert row.status is Status.WRONG and "[3] is nan" in row.reason
    assert calls == ["before", "run"]
    call = gt.Call(run, outputs=[out[:3]], before=lambda: calls.append("before"))
    tune([{}], lambda config: call, check=gt.Check(RIGHT[:3]))
    assert calls[::2] == ["before"] * (len(calls) // 2)


def test_an_element_that_no_configuration_writes_is_wrong_without_a_reference_too() -> None:
    out = np.zeros(4)

    def run() -> None:
        out[:3] = RIGHT[:3]

    rows = tune([{"B": b} for b in range(3)], lambda config: gt.Call(run, outputs=[out])).rows
    assert {row.status for row in rows} == {Status.WRONG} and "NaN" in rows[0].reason
    whole = tune([{"B": b} for b in range(3)], lambda config: gt.Call(run, outputs=[out[:3]])).rows
    assert {(row.status, row.verified) for row in whole} == {(Status.OK, Verified.AGREED)}


def test_all_failing_names_the_commonest_reason() -> None:
    def build(config: dict[str, Any]) -> Callable[[], Any]:
        raise RuntimeError("odd" if config["B"] == 1 else "no such tile")

    tuned = tune([{"B": b} for b in range(3)], build)
    with pytest.raises(ValueError, match=r"No best kernel found: 2 of 3 .*no such tile"):
        _ = tuned.config
    with pytest.raises(UserError, match="No configurations to tune"):
        tune([], build)


def test_a_reference_that_fails_is_no_fault_of_configurations() -> None:
    def reference() -> Any:
        raise KeyError("x")

    with pytest.raises(UserError, match="the reference: raised KeyError"):
        tune([{}], lambda config: lambda: RIGHT, check=gt.Check(reference))


def test_calls_that_must_repeat_their_bits_and_do_not_are_unstable() -> None:
    clock = Said()

    def row(values: list[Any], repeats: int = 2) -> gt.Row:
        calls = itertools.chain(values, itertools.repeat(values[-1]))

        def run() -> Any:
            clock.us = 1.0
            return next(calls)

        return tune([{}], lambda config: run, clock=clock, check=gt.Check(values[0], repeats=repeats)).rows[0]

    nearly = RIGHT + np.array([0, 0, 0, 1e-12])
    assert row([RIGHT, RIGHT.copy(), RIGHT.copy()]).status is Status.OK
    found = row([RIGHT, RIGHT, nearly])
    assert found.status is Status.UNSTABLE and "call 3" in found.reason
    assert row([1.0, 1.0 + 1e-12]).status is Status.UNSTABLE
    assert row([RIGHT, nearly], repeats=0).status is Status.OK
    assert row([np.array([0.0]), np.array([-0.0])]).status is Status.UNSTABLE
    torch = pytest.importorskip("torch")
    assert row([torch.ones(2), torch.ones(2)]).status is Status.OK
    assert row([torch.zeros(2), -torch.zeros(2)]).status is Status.UNSTABLE


def test_outputs_of_any_kind_cost_no_more_than_their_configuration() -> None:
    clock = Said()
    results = {"text": "done", "nested": {"out": [RIGHT, 3]}, "ragged": np.array([[1], [2, 3]], dtype=object)}
    check = gt.Check({"out": (RIGHT, 3.0)})
    tuned = tune([{"kind": kind} for kind in results], lambda config: clock.call(1.0, results[config["kind"]]),
                 clock=clock, check=check)  # fmt: skip
    assert {row.config["kind"]: row.status for row in tuned.rows} == {
        "nested": Status.OK, "text": Status.WRONG, "ragged": Status.WRONG,
    }  # fmt: skip
    both = tune([{"n": 1}, {"n": 2}], lambda config: clock.call(1.0, object()), clock=clock)
    assert {(row.status, row.verified) for row in both.rows} == {(Status.OK, Verified.FALSE)}
    ragged = tune([{"n": 1}, {"n": 2}], lambda config: clock.call(1.0, results["ragged"]), clock=clock)
    assert [row.status for row in ragged.rows] == [Status.OK, Status.WRONG]
    assert "cannot be compared" in ragged.rows[1].reason


@pytest.mark.timeout(900, method="thread")  # by a signal it would set the alarm that the limit needs
def test_what_hangs_in_python_ends_at_the_limit() -> None:
    def build(config: dict[str, Any]) -> Callable[[], Any]:
        def run() -> Any:
            if config["hang"]:
                assert 0 < signal.getitimer(signal.ITIMER_REAL)[0] <= effort.timeout_s
                signal.setitimer(signal.ITIMER_REAL, 0.05)  # the rest of its time goes by
            while config["hang"]:
                pass
            return RIGHT

        return run

    effort = gt.Effort(timeout_s=1000.0)
    tuned = gt.tune_callables([{"hang": True}, {"hang": False}], build, output_dir=None, effort=effort)
    assert [(row.config["hang"], row.status) for row in tuned.rows] == [(False, Status.OK), (True, Status.TIMEOUT)]
    assert tuned.rows[1].reason.endswith("no end after 1000 s; a larger timeout allows more")


def test_a_context_that_is_lost_under_the_check_is_the_fault_of_what_is_checked() -> None:
    def check(value: float) -> None:
        if value == 2:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")

    clock = Said()
    tuned = tune([{"B": b} for b in (1, 2, 3)], lambda config: clock.call(1.0, float(config["B"])), clock=clock,
                 check=gt.Check(manual=check))  # fmt: skip
    assert [(row.config["B"], row.status) for row in tuned.rows if row.config["B"] > 1] == [
        (2, Status.CRASHED), (3, Status.CRASHED),
    ]  # fmt: skip
    assert "illegal memory access" in next(row.reason for row in tuned.rows if row.config["B"] == 2)


def test_nothing_runs_after_the_gpus_context_is_lost() -> None:
    clock, built = Said(), []

    def build(config: dict[str, Any]) -> Callable[[], Any]:
        built.append(config["B"])
        run = clock.call(config["B"])

        def crash() -> Any:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")

        return crash if config["B"] == 5 else run

    effort = gt.Effort(chunk=2)
    tuned = gt.tune_callables([{"B": b} for b in (3, 4, 1, 5, 2)], build, clock=clock, output_dir=None, effort=effort)
    crashed = {row.config["B"]: row.reason for row in tuned.rows if row.status is Status.CRASHED}
    assert set(crashed) == {1, 5, 2} and "not run" in crashed[2] and "illegal" in crashed[5]
    assert tuned.config == {"B": 3} and built == [3, 4, 1, 5]


def test_only_finalists_and_a_chunk_are_held_at_once() -> None:
    clock = Said()
    alive, most = 0, 0

    class Inputs:
        def __init__(self) -> None:
            nonlocal alive, most
            alive += 1
            most = max(most, alive)

        def __del__(self) -> None:
            nonlocal alive
            alive -= 1

    def build(config: dict[str, Any]) -> Callable[[], Any]:
        inputs, run = Inputs(), clock.call(config["B"])
        return lambda: (run(), inputs)[0]

    effort = gt.Effort(chunk=4, finalists=2, early_stop_ratio=0)
    tuned = gt.tune_callables([{"B": 40 - b} for b in range(20)], build, clock=clock, output_dir=None, effort=effort)
    assert tuned.config == {"B": 21} and most <= 4 + 2 + 1


def test_what_does_not_fit_beside_others_is_tried_again_without_them() -> None:
    clock, alive = Said(), 0

    class Inputs:
        def __init__(self) -> None:
            nonlocal alive
            if alive > 2:
                raise RuntimeError("CUDA out of memory")
            alive += 1

        def __del__(self) -> None:
            nonlocal alive
            alive -= 1

    def build(config: dict[str, Any]) -> Callable[[], Any]:
        if config["B"] == 9:
            raise RuntimeError("CUDA out of memory")
        inputs, run = Inputs(), clock.call(config["B"])
        return lambda: (run(), inputs)[0]

    effort = gt.Effort(finalists=1, early_stop_ratio=0)
    tuned = gt.tune_callables([{"B": b} for b in range(10, 4, -1)], build, clock=clock, output_dir=None, effort=effort)
    assert {row.config["B"]: row.status for row in tuned.rows} == {
        **dict.fromkeys((10, 8, 7, 6), Status.OK), 9: Status.OUT_OF_RESOURCES, 5: Status.OK,
    }  # fmt: skip
    assert tuned.config == {"B": 5}


def test_the_clock_of_the_host_tells_slow_from_fast() -> None:
    tuned = tune([{"n": n} for n in (200_000, 200)], lambda config: lambda: sum(range(config["n"])),
                 check=gt.Check(skip=True))  # fmt: skip
    assert tuned.config == {"n": 200} and tuned.clock == HostClock.name
    with pytest.raises(UserError, match="no clock 'sundial'"):
        tune([{}], lambda config: lambda: None, clock="sundial")


@pytest.mark.skipif(os.path.exists("/dev/nvidiactl") or os.path.exists("/dev/kfd"), reason="there is a GPU")
def test_a_clock_that_was_asked_for_and_cannot_be_used_is_an_error() -> None:
    with pytest.raises(UserError, match="clock: proton times GPUs"):
        tune([{}], lambda config: lambda: 1.0, clock="proton")


def test_a_run_leaves_log_table_and_best(tmp_path: Path) -> None:
    clock = Said()
    tuned = gt.tune_callables(
        [{"B": 2, "tile": (8, 4)}, {"B": 1, "tile": (4, 4)}], lambda config: clock.call(config["B"]), name="my sum",
        check=gt.Check(RIGHT), clock=clock, output_dir=tmp_path,
    )  # fmt: skip
    assert tuned.folder is not None and tuned.folder.parent == tmp_path
    with (tuned.folder / "table.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["B"] for row in rows] == ["1", "2"] and rows[0]["status"] == "ok" and rows[0]["method"] == "in_process"
    assert "B1_tile4x4: ok" in (tuned.folder / "tune.log").read_text()
    read = results.read(tuned.folder / "tuned.yaml")
    (row,) = read.rows
    assert row.config is not None and row.config.options() == {"B": 1, "tile": (4, 4)}
    assert row.verified is Verified.TRUE and row.facts["median_us"] == 1.0
    assert row.facts["derived"] == {"method": "in_process"} and read.header["profiler"] == "said"
    summary = json.loads((tuned.folder / "summary.json").read_text())
    assert set(summary["stage_seconds"]) == {"builds", "screen", "finals"} and summary["space"] == 2


def test_right_ones_have_finals_although_many_faster_ones_are_found_wrong_at_the_end() -> None:
    clock = Said()

    def build(config: dict[str, Any]) -> Callable[[], Any]:
        is_wrong = config["B"] < 10
        return clock.call(1.0 + config["B"], RIGHT + (config["B"] + 1) * is_wrong)

    effort = gt.Effort(finalists=3, early_stop_ratio=1.5)
    tuned = gt.tune_callables([{"B": b} for b in (1, 2, 3, 4, 200, 201)], build, clock=clock, effort=effort,
                              output_dir=None)  # fmt: skip
    assert tuned.config == {"B": 200} and tuned.winner.finalist and np.array_equal(tuned.kernel(), RIGHT)


def test_warm_up_and_timed_calls_are_as_many_as_asked() -> None:
    clock, calls = Said(), []
    run = clock.call(5.0)
    effort = gt.Effort(warmup=10, screen_calls=7, rounds=100)
    (row,) = gt.tune_callables([{}], lambda config: lambda: calls.append(run()), clock=clock, effort=effort,
                               output_dir=None).rows  # fmt: skip
    assert len(calls) == 10 + 7 + 100 and len(clock.order) == 107 and len(row.samples_us) == 100


def test_importing_the_package_loads_neither_torch_nor_triton() -> None:
    names = "'torch', 'triton', 'numpy', 'yaml'"
    code = f"import sys, gemm_tuner as gt; print(*(m for m in ({names}) if m in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_every_name_of_the_surface_is_there() -> None:
    assert {name for name in gt.__all__ if not hasattr(gt, name)} == set()
    assert set(gt.__all__) <= set(dir(gt))
    with pytest.raises(AttributeError):
        _ = gt.no_such_name

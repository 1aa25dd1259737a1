"""Profilers and launchers that fail: each is one clear line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from launcher_runs import ONE, Run, plan
from samples import ROOT, config, device

from gemm_tuner.core.errors import EXIT_ENVIRONMENT, EnvironmentFault
from gemm_tuner.languages.triton.language import LANGUAGE
from gemm_tuner.launch.plan import EXIT_CANNOT_WRITE, VERIFY, Method, Plan, Work
from gemm_tuner.measure import launcher_process as launch
from gemm_tuner.measure import supervise
from gemm_tuner.measure.launcher_events import ignore
from gemm_tuner.measure.launcher_process import launcher_env
from gemm_tuner.measure.profiler_faults import profiler_failed
from gemm_tuner.measure.supervise import JournalTail
from gemm_tuner.profilers.nsys import Nsys
from gemm_tuner.source import codegen
from gemm_tuner.system.processes import Ended


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("exit 1", ["nsys ended with exit status 1", "No GPU for nsys", "launcher.log", "--profiler"]),
        ("stats fails", ["nsys ended with exit status 1", "the report cannot be opened", "export.log"]),
        ("no recording", ["nsys ended with exit status 1", "does not exist", "Importer error: nothing was written"]),
        ("no file", ["trace_cuda_gpu_trace.csv", "wrote no such file"]),
        ("empty file", ["trace_cuda_gpu_trace.csv", "no kernels recorded"]),
        pytest.param("no kernels", ["trace_cuda_gpu_trace.csv", "no kernels recorded"], marks=pytest.mark.grid),
        ("cut short", ["trace_cuda_gpu_trace.csv, line"]),
        pytest.param("shifted", ["trace_cuda_gpu_trace.csv, line 2"], marks=pytest.mark.grid),
        ("other kernels", ["nsys recorded none of 1 configurations", "the trace has 0 calls of good_1"]),
    ],
)
def test_a_profiler_that_fails_is_one_clear_line(
    here: None, run: Run, monkeypatch: pytest.MonkeyPatch, fault: str, words: list[str]
) -> None:
    monkeypatch.setenv("NSYS_FAULT", fault)
    with pytest.raises(EnvironmentFault) as caught:
        run((ONE, ["good_1", "good_2"]))
    message = caught.value.one_line()
    assert caught.value.exit_status == EXIT_ENVIRONMENT
    assert [word for word in words if word not in message] == []
    assert "\n" not in message


def test_a_failure_after_all_is_done_is_the_profilers(here: None, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAND_IN_END", "exit 1")
    with pytest.raises(EnvironmentFault, match=r"exit status 1.*not happy"):
        run((ONE, ["good_1"]))


def test_half_a_last_line_is_no_event(here: None, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything ended and the process died: only the profiler can have failed."""
    monkeypatch.setenv("STAND_IN_END", "half a line")
    with pytest.raises(EnvironmentFault, match="nsys ended with exit status 139"):
        run((ONE, ["good_1"]))


def test_a_script_that_does_not_start(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch.sys, "executable", "/bin/false")
    with pytest.raises(EnvironmentFault, match=r"exit status 1: it printed nothing.*--profiler"):
        run((ONE, ["good_1"]))


@pytest.mark.parametrize(("limit_s", "alive"), [(900.0, True), (-1.0, False)])
def test_a_finished_launcher_has_a_while_to_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit_s: float, alive: bool
) -> None:
    monkeypatch.setattr(supervise, "REPORT_LIMIT_S", limit_s)
    tail = JournalTail(tmp_path / "journal.jsonl", plan((ONE, ["good_1"])), ignore)
    assert tail.beat() == tail.beat()
    tail.path.write_text('{"event": "finished"}\n{"event": "ha')
    assert (tail.beat() != tail.beat()) == alive


def test_a_profiler_that_never_ends_is_said_to_be_stuck(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("Generating report\n")
    message = profiler_failed(Nsys(), Ended(-9, True, 1.0, log)).one_line()
    assert "nsys did not come to an end and was killed: Generating report" in message


def test_a_launcher_that_cannot_write_its_journal_is_attributed_to_none(tmp_path: Path) -> None:
    """The launcher itself, on a disk that is full from the first event on."""
    script = codegen.write_script(ROOT / "templates", tmp_path, "gemm_tile", ONE, [config()], device("sm_90").target)
    work = Work(ONE, ((0, config().name),))
    plan = tmp_path / "plan.json"
    Plan(VERIFY, (script.file,), (work,), Method(), device="cpu").write(plan)
    command = [sys.executable, str(tmp_path / script.file), "--plan", str(plan), "--journal", "/dev/full"]
    done = subprocess.run(command, capture_output=True, text=True, env=launcher_env(LANGUAGE, tmp_path, {}))
    assert done.returncode == EXIT_CANNOT_WRITE, done.stderr
    (tmp_path / "log").write_text(done.stderr)
    with pytest.raises(EnvironmentFault, match=r"could not write.*No space left on device.*free some space"):
        supervise.require_journal(Ended(done.returncode, False, 1.0, tmp_path / "log"))

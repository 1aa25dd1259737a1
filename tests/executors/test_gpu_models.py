"""Several GPU models in one command: a run and a results file for each."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from samples import config, gpu
from thread_workers import ThreadWorker
from tuning import environment, run_options

from gemm_tuner import __version__
from gemm_tuner.cli.main import consoles
from gemm_tuner.core.errors import EnvironmentFault
from gemm_tuner.gemm.problem import GemmProblem
from gemm_tuner.measure.device import Machine
from gemm_tuner.pipeline.cluster_run import (
    MODEL,
    SHARE,
    Started,
    asked_for,
    by_model,
    require_one_model_a_machine,
    runs_of,
    tune_each,
    with_begun_file,
    worst,
)
from gemm_tuner.pipeline.cluster_work import FoundGpu, alike, machine_of
from gemm_tuner.pipeline.run_identity import gpu_labels
from gemm_tuner.store.results import write_rows
from gemm_tuner.store.sizes import SizeEntry
from gemm_tuner.system import program


def found(name: str, node: str) -> FoundGpu:
    return FoundGpu(ThreadWorker(None, node=node), Machine(({**gpu(0), "name": name},), {"triton": "3"}, "570"))


GPUS = [found("NVIDIA H200", "b"), found("AMD Instinct MI300X", "c"), found("NVIDIA H200", "a")]


def test_each_model_has_its_file_its_machines_and_a_share_of_the_cores(tmp_path: Path) -> None:
    asked = run_options(tmp_path, GemmProblem(64, 64, 64), results_file=tmp_path / "tuned.yaml")
    words = ["-m", "64", "-o", "tuned.yaml"]
    amd, nvidia = runs_of(asked, by_model(GPUS), words)
    assert (amd.results.name, nvidia.results.name) == ("tuned.amd_instinct_mi300x.yaml", "tuned.nvidia_h200.yaml")
    assert (amd.environment[MODEL], nvidia.environment[MODEL]) == ("c", "a,b")
    assert amd.environment[SHARE] == "2"
    assert nvidia.argv[-2:] == ["-o", str(nvidia.results)] and nvidia.argv[3:7] == words


def test_a_models_run_takes_no_module_from_the_users_folder(tmp_path: Path) -> None:
    (tmp_path / "queue.py").write_text("raise SystemExit('this is mine')")
    (one,) = runs_of(run_options(tmp_path, GemmProblem(64, 64, 64)), by_model(GPUS[:1]), ["--version"])
    environ = {**os.environ, **one.environment}
    done = subprocess.run(one.argv[:4], cwd=tmp_path, env=environ, capture_output=True, text=True)
    assert done.returncode == 0 and __version__ in done.stdout, done.stderr


def test_results_of_all_models_come_whole_and_last_and_fit_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = run_options(tmp_path, GemmProblem(64, 64, 64), results_file=tmp_path / "tuned.yaml")
    monkeypatch.setattr(sys, "argv", ["tune-gemm", "--version"])
    log, out = io.StringIO(), io.StringIO()
    console, results = Console(file=log, width=80), Console(file=out, width=80)
    assert tune_each(asked, by_model(GPUS), console, results) == 0
    lines = out.getvalue().splitlines()
    assert all(__version__ in line and "[" not in line for line in lines[:2])
    assert [line.rsplit("/", 1)[-1] for line in "".join(lines[2:]).split(".yaml")] == [
        "tuned.amd_instinct_mi300x", "tuned.nvidia_h200", ""
    ]  # fmt: skip
    assert {one.environment[program.CALLED_AS] for one in runs_of(asked, by_model(GPUS), [])} == {"tune-gemm"}


def test_an_interrupted_command_shows_the_results_that_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model may have ended long before; its table is nowhere else."""
    asked, wait, out = run_options(tmp_path, GemmProblem(64, 64, 64)), Started.wait, io.StringIO()
    interrupts = iter([KeyboardInterrupt()])

    def interrupted_once(one: Started) -> int:
        for interrupt in interrupts:
            raise interrupt
        return wait(one)

    monkeypatch.setattr(sys, "argv", ["tune-gemm", "--version"])
    monkeypatch.setattr(Started, "wait", interrupted_once)
    with pytest.raises(KeyboardInterrupt):
        tune_each(asked, by_model(GPUS), Console(file=io.StringIO()), Console(file=out))
    assert out.getvalue().count(__version__) == 2


def test_a_command_that_passes_results_on_has_them_as_its_terminal_shows_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(program.SHOWN_WIDTH, "72")
    monkeypatch.setenv(program.CALLED_AS, "tune-gemm")
    shown = consoles()
    assert shown.out.is_terminal and shown.out.width == 72 and not shown.log.is_terminal
    assert program.name() == "tune-gemm"


def test_without_a_results_file_theirs_lie_in_the_output_folder(tmp_path: Path) -> None:
    asked = run_options(tmp_path, GemmProblem(64, 64, 64))
    assert [one.results.parent for one in runs_of(asked, by_model(GPUS), [])] == [asked.output_dir] * 2


def begun(path: Path, size: GemmProblem) -> None:
    """A results file of this size, which has no configuration yet."""
    path.unlink(missing_ok=True)
    write_rows(path, {"date": "2026-01-01T00:00:00", "source": "measured"}, [], [(size, "not reached")])


def test_with_one_model_left_the_file_that_several_began_for_it_is_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the same command would time again what is finished: where results go is part of what names a run."""
    monkeypatch.chdir(tmp_path)
    console, size = Console(file=io.StringIO()), GemmProblem(64, 64, 64)
    for asked in (run_options(tmp_path, size, **more) for more in ({}, {"results_file": Path("mine.yaml")})):
        asked.output_dir.mkdir(exist_ok=True)
        amd, nvidia = runs_of(asked, by_model(GPUS), [])
        assert with_begun_file(asked, nvidia.model, console) == asked
        amd.results.touch()
        assert with_begun_file(asked, nvidia.model, console) == asked
        begun(nvidia.results, GemmProblem(64, 64, 128))
        assert with_begun_file(asked, nvidia.model, console) == asked  # of other sizes
        begun(nvidia.results, size)
        of_one = with_begun_file(asked, nvidia.model, console)
        assert of_one.results_file == nvidia.results == Path(nvidia.argv[-1])
        for of_its_own in (
            replace(asked, fresh=True),
            replace(asked, older={size: config()}),
            replace(asked, entries=(SizeEntry(size, config()),)),
        ):
            assert with_begun_file(of_its_own, nvidia.model, console) == of_its_own
        asked_for(asked).touch()
        assert with_begun_file(asked, nvidia.model, console) == asked


def test_a_machine_with_two_models_is_refused() -> None:
    require_one_model_a_machine(by_model(GPUS))
    with pytest.raises(EnvironmentFault, match="both AMD Instinct MI300X and NVIDIA H200"):
        require_one_model_a_machine(by_model([*GPUS, found("NVIDIA H200", "c")]))


def test_gpus_of_many_machines_are_numbered_as_one_machines() -> None:
    machine = machine_of(by_model(GPUS)["NVIDIA H200"])
    assert [row["id"] for row in machine.gpus] == [0, 1]


def test_a_run_that_was_killed_is_no_success_of_the_command() -> None:
    assert worst([0, -9]) == 137 and worst([3, 0]) == 3 and worst([0, 0]) == 0


def test_gpus_without_uuid_on_two_machines_are_told_apart() -> None:
    """A resumed run knows its GPUs by these labels, and keeps the times of those that it meets again."""
    row = {**gpu(0), "uuid": "", "pci": "0000:05:00"}
    gpus = [replace(found("MI300X", host), machine=Machine((row,), {}, "6.8"), host=host) for host in ("a", "b")]
    labels = gpu_labels(replace(environment(2), machine=machine_of(gpus)))
    assert len(set(labels)) == 2


def test_a_gpu_with_another_driver_is_left_out() -> None:
    other = replace(found("NVIDIA H200", "d"), machine=replace(GPUS[0].machine, driver="535"))
    out = io.StringIO()
    assert alike([other, GPUS[0], GPUS[2]], Console(file=out, width=200)) == [GPUS[0], GPUS[2]]
    assert "driver 535" in out.getvalue()

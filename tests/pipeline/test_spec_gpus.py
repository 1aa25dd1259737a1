"""The GPUs of a spec's programs are held while a profiler times kernels on them."""

from __future__ import annotations

import io
import json
import os
import signal
from pathlib import Path

import pytest
from nsys_for_programs import nsys_for_programs
from rich.console import Console
from samples import gpu

from gemm_tuner.cli.main import main
from gemm_tuner.core.errors import EXIT_ENVIRONMENT, EXIT_OK, EnvironmentFault
from gemm_tuner.kernels.program_spec_file import read_spec
from gemm_tuner.measure.device import Machine
from gemm_tuner.pipeline.spec_gpus import SpecGpus
from gemm_tuner.pipeline.spec_run import SpecOptions, run
from gemm_tuner.store.run_folder import DEFAULT_OUTPUT_DIR
from gemm_tuner.system import gpu_lock

UUID = "GPU-1"
# Notes who holds the GPU, and its kernels where the stand-in for nsys reads them.
PROGRAM = """\
[ -e holder ] || cp $HOLDER holder
for ns in 3000 1000 90000; do echo "$ns matmul_kernel" >> $TRACE/kernels.txt; done
"""
PROFILED = """\
name: t
build: "sh build.sh {{out}}"
command: sh program.sh
env: {{HOLDER: {holder}}}
profile: {{kernels: "^matmul", tool: nsys}}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a spec, on a machine with one GPU and a stand-in for nsys."""
    here = Machine(({**gpu(0), "uuid": UUID},), {}, "")
    monkeypatch.setattr("gemm_tuner.measure.device.look", lambda: here)
    monkeypatch.setenv("GEMM_TUNER_LOCK_DIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    nsys_for_programs(tmp_path, monkeypatch)
    (tmp_path / "build.sh").write_text("touch $1 built\n")
    (tmp_path / "program.sh").write_text(PROGRAM)
    holder = gpu_lock.lock_path(UUID).with_suffix(".holder")
    (tmp_path / "t.yaml").write_text(PROFILED.format(holder=holder))
    return tmp_path


def test_a_program_under_a_profiler_waits_for_the_gpu_its_build_does_not(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with gpu_lock.held([UUID]):
        assert main(["spec", "t.yaml", "--tune", "--no_wait"]) == EXIT_ENVIRONMENT
    assert f"{UUID} is in use by process" in capsys.readouterr().err
    assert (folder / "built").exists() and not (folder / "holder").exists()


def test_the_gpu_is_held_while_programs_run_and_not_where_all_is_known(folder: Path) -> None:
    assert main(["spec", "t.yaml", "--tune", "--no_wait"]) == EXIT_OK
    assert json.loads((folder / "holder").read_text())["pid"] == os.getpid()
    with gpu_lock.held([UUID]):
        assert main(["spec", "t.yaml", "--tune", "--no_wait"]) == EXIT_OK


def test_a_program_that_measures_itself_holds_no_gpu(folder: Path) -> None:
    (folder / "t.yaml").write_text('name: t\ncommand: "echo ms=1"\nmetric: {regex: "ms=(.*)"}\n')
    with gpu_lock.held([UUID]):
        assert main(["spec", "t.yaml", "--no_wait"]) == EXIT_OK


def test_programs_run_where_gpus_cannot_be_looked_for(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken() -> Machine:
        raise EnvironmentFault("torch does not load")

    monkeypatch.setattr("gemm_tuner.measure.device.look", broken)
    assert main(["spec", "t.yaml", "--tune"]) == EXIT_OK
    assert capsys.readouterr().err.count("torch does not load") == 1


def test_waiting_names_the_gpu_and_ends_on_request(folder: Path) -> None:
    said: list[str] = []
    asked = SpecGpus(True, None, said.append, lambda: bool(said))
    with gpu_lock.held([UUID]), pytest.raises(KeyboardInterrupt), asked.held():
        pass
    assert UUID in said[0]


class Interrupts(io.StringIO):
    """A terminal at which the user presses Ctrl-C as soon as a run waits for a GPU."""

    def write(self, text: str) -> int:
        if "waiting for GPU" in text:
            os.kill(os.getpid(), signal.SIGINT)
        return super().write(text)


def test_what_was_run_is_there_after_an_interrupted_wait_for_the_finals(folder: Path) -> None:
    assert main(["spec", "t.yaml", "--no_wait"]) == EXIT_OK
    options = SpecOptions(tune=True, rounds=3, fresh=False, output_dir=DEFAULT_OUTPUT_DIR)
    with gpu_lock.held([UUID]):
        found = run(read_spec(folder / "t.yaml"), options, Console(file=Interrupts()))
    assert found.interrupted and not found.rounds
    assert [row.status for row in found.ranked] == ["ok"]

"""What a command starts before it imports the rest."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from process_samples import ends
from samples import ROOT

from gemm_tuner.cli.start import times_here


@pytest.mark.parametrize(
    ("line", "begins"),
    [
        ("-m 512 -n 512 -k 512", True),
        ("--gemm_size_file sizes.yaml --compare --profiler nsys", True),
        ("-m 512 -n 512 -k 512 --dry_run", False),
        ("-m 512 -n 512 -k 512 --arch=gfx942", False),
        ("--gemm_size_file sizes.yaml --cluster ray", False),
        ("-m 512 --explain gemm_tile_BM16", False),
        ("report runs/1", False),
        ("--benchmark tuned.yaml", False),
        ("--help", False),
        ("", False),
    ],
)
def test_torch_is_imported_ahead_for_what_is_timed_here(line: str, begins: bool, tmp_path: Path) -> None:
    assert times_here(line.split(), [tmp_path / "none", tmp_path]) is begins


def test_without_a_gpu_nothing_is(tmp_path: Path) -> None:
    assert not times_here(["-m", "512"], [tmp_path / "none"])


THREADS = """
import os, sys
from gemm_tuner.cli import start
start.ready()
import numpy
from threadpoolctl import threadpool_info
print(os.environ.get("OPENBLAS_NUM_THREADS"), sys.getswitchinterval() < 0.005)
print(*(pool["num_threads"] for pool in threadpool_info() if pool["internal_api"] == "openblas"))
"""


@pytest.mark.parametrize(
    ("line", "given", "told"),
    [("--dry_run", None, "1"), ("--dry_run", "2", "2"), ("spec program.yaml", None, "None")],
    ids=["tuning", "the environment says so", "a user's programs"],
)
def test_numpy_starts_no_threads_in_processes_of_the_tuner(line: str, given: str | None, told: str) -> None:
    """Those of all processes of a run would take the cores for seconds; a user's program is timed with what it has."""
    env = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    command = [sys.executable, "-c", THREADS, *line.split()]
    env |= {"OPENBLAS_NUM_THREADS": given} if given else {}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=True)
    said, threads = done.stdout.splitlines()
    assert said == f"{told} True"
    if told == "1":
        assert set(threads.split()) == {"1"}


CODE = """
import sys
from pathlib import Path
from gemm_tuner.cli import start
start.times_here.__defaults__ = ([Path("/dev/null")],)
sys.argv = ["tune_gemm.py", *sys.argv[1:]]
begun = []
class Noted(start.TorchAhead):
    @classmethod
    def begin(cls, removed=()):
        one = super().begin(removed)
        begun.append((one, one._process._process.pid))
        return one
start.TorchAhead = Noted
try:
    status = start.ready()()
except BaseException as error:
    status = type(error).__name__
(ahead, pid), = begun
print(status, ahead._process, pid)
"""


@pytest.mark.parametrize(
    ("words", "variables", "status"),
    [
        (["-m", "64", "--no_such_flag"], {}, "2"),
        (["-m", "64"], {"PYTHONPATH": "broken"}, "ModuleNotFoundError"),
    ],
    ids=["a wrong flag", "a package that is missing"],
)
def test_what_was_started_ends_with_a_command_that_does_not_begin(
    words: list[str], variables: dict[str, str], status: str, tmp_path: Path
) -> None:
    (tmp_path / "broken" / "rich").mkdir(parents=True)
    (tmp_path / "broken" / "rich" / "__init__.py").write_text("raise ModuleNotFoundError('no rich', name='rich')")
    env = {**os.environ, **variables, "PYTHONPATH": os.pathsep.join([variables.get("PYTHONPATH", ""), str(ROOT)])}
    done = subprocess.run(
        [sys.executable, "-c", CODE, *words], cwd=tmp_path, env=env, capture_output=True, text=True, check=True
    )
    found, left, pid = done.stdout.split()
    assert (found, left) == (status, "None") and ends(int(pid))

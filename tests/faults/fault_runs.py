"""Runs the whole tuner as a person does, in a process of its own, and tells what it left: rows, states, processes.

On a machine without a GPU three stand-ins take the GPU's place, and nothing else: a ``torch`` that reports an H200, a
launcher in the generated scripts (by ``--templates``) and an ``nsys`` on PATH. They lie in ``on_path``. Finals take 3
processes in place of 5 (``short_tune_gemm.py``), and one worker compiles where a test does not ask for more. ``make
test`` forks the tuner and its launchers from a process that has imported pandas and the tuner, and no torch
(``tests/helpers/warm_python.py``); ``make test-all`` starts them as a person does.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import warm_python

from gemm_tuner.store import results, run_record
from gemm_tuner.store.run_record import RunRecord

ROOT = Path(__file__).resolve().parents[2]
ON_PATH = Path(__file__).resolve().parent / "on_path"
CASE = "GEMM_TUNER_FAULT_CASE"
HOLD, HELD = "STAND_IN_HOLD", "held"
LIMIT_S = 800.0
LOOK_S = 0.01
SIZES = "- {M: 512, N: 512, K: 512}\n- {M: 384, N: 256, K: 512}\n"
SMALL_SIZES = "- {M: 64, N: 128, K: 256}\n- {M: 40, N: 64, K: 256}\n"  # for the interpreter
# Twelve configurations of four kernels that compile fast: GROUP_SIZE_M is no part of a kernel. Eight get into finals.
AXES = {
    "BLOCK_SIZE_M": "[16, 32]",
    "BLOCK_SIZE_N": "[16, 32]",
    "BLOCK_SIZE_K": "[32]",
    "GROUP_SIZE_M": "[1, 2, 4]",
    "SPLIT_K": "[1]",
    "num_warps": "[4]",
    "num_stages": "[3]",
}
STAND_INS = {
    "script.py.j2": {"from gemm_tuner.launch.main import main": "from gpu_stand_in import main"},
    "head_triton.j2": {"import triton\nimport": "import light_triton, triton\nimport"},
}


def small_space(axes: dict[str, str]) -> str:
    """The space of sm_90 with one family and few values on each axis."""
    shipped, _, _ = (ROOT / "rules" / "space_sm_90.yaml").read_text().partition("  gemm_persistent:")
    lines = []
    for line in shipped.splitlines():
        axis = line.strip().partition(":")[0]
        lines.append(f"    {axis}: {axes[axis]}" if axis in axes else line)
    return "\n".join(lines) + "\n"


def templates_into(folder: Path, changes: dict[str, dict[str, str]]) -> Path:
    """A copy of the templates; changes: by file, what is put in the place of what. All must occur."""
    folder.mkdir()
    for path in (ROOT / "templates").glob("*.j2"):
        text = path.read_text()
        for old, new in changes.get(path.name, {}).items():
            assert old in text, f"{path.name} has no {old!r}"
            text = text.replace(old, new)
        (folder / path.name).write_text(text)
    return folder


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    status: int
    out: str
    err: str
    seconds: float

    def last_line(self) -> str:
        return self.err.strip().splitlines()[-1] if self.err.strip() else ""


@dataclass
class Machine:
    """A folder that runs start in, and their environment. ``cache`` of compiled kernels may be shared by many.

    prefix: what the command is run by, such as a shell that sets limits. script: what stands for ``tune_gemm.py``.
    task: its first words.
    """

    folder: Path
    cache: Path
    env: dict[str, str] = field(default_factory=dict)
    mark: str = field(default_factory=lambda: secrets.token_hex(8))
    prefix: tuple[str, ...] = ()
    script: Path = Path(__file__).resolve().parent / "short_tune_gemm.py"
    task: tuple[str, ...] = ("--gemm_size_file", "sizes.yaml", "--space", "space.yaml")
    axes: dict[str, str] = field(default_factory=lambda: AXES)
    sizes: str = SIZES

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        for name, text in (("space.yaml", small_space(self.axes)), ("sizes.yaml", self.sizes)):
            if not (self.folder / name).exists():  # else a run of another test may be reading it
                (self.folder / name).write_text(text)

    @property
    def raw(self) -> Path:
        return self.run_folder() / "raw"

    @property
    def out_path(self) -> Path:
        return self.folder / f"out_{self.mark}.txt"

    @property
    def err_path(self) -> Path:
        return self.folder / f"err_{self.mark}.txt"

    @property
    def hold(self) -> Path:
        """While this file is there, the last process of the finals does not begin."""
        return self.folder / "hold"

    @property
    def is_held(self) -> bool:
        return self.hold.with_name(HELD).exists()

    def release(self) -> None:
        for path in (self.hold, self.hold.with_name(HELD)):
            path.unlink(missing_ok=True)

    def another(self) -> Machine:
        """The same machine for a run beside those of other tests: its output and its processes are told from theirs."""
        return replace(self, env=dict(self.env), mark=secrets.token_hex(8))

    def run_folders(self) -> list[Path]:
        return sorted((self.folder / "results").glob("*-*")) if (self.folder / "results").is_dir() else []

    def run_folder(self) -> Path:
        return self.run_folders()[-1]

    def start(self, *flags: str, **env: str) -> subprocess.Popen[str]:
        """The tuner, in a process group of its own as a shell would start it."""
        # What was released at the moment that it looked may have said after that that it is held.
        self.hold.with_name(HELD).unlink(missing_ok=True)
        command = [*self.prefix, sys.executable, str(self.script), *self.task, "--num_threads", "1", *flags]
        marks = {CASE: self.mark, HOLD: str(self.hold)}
        whole = {**os.environ, "GEMM_TUNER_CACHE_DIR": str(self.cache), **self.env, **env, **marks}
        with self.out_path.open("w") as out, self.err_path.open("w") as err:
            return subprocess.Popen(
                command, cwd=self.folder, env=whole, text=True, stdin=subprocess.DEVNULL, start_new_session=True,
                stdout=out, stderr=err,
            )  # fmt: skip

    def end(self, process: subprocess.Popen[str], started: float | None = None) -> Outcome:
        """Waits for a run. One that takes LIMIT_S is killed, and the test fails."""
        begun = time.monotonic() if started is None else started
        try:
            status = process.wait(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            for pid in self.processes():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            raise
        return Outcome(status, self.out_path.read_text(), self.err_path.read_text(), time.monotonic() - begun)

    def run(self, *flags: str, **env: str) -> Outcome:
        return self.end(self.start(*flags, **env), time.monotonic())

    def processes(self) -> list[int]:
        """All that was started from here and runs, whatever its parent and its session."""
        return [pid for pid, env, _ in everything() if f"{CASE}={self.mark}" in env]

    def find(self, is_wanted: Callable[[str], bool]) -> list[int]:
        """Those whose command line is wanted."""
        return [pid for pid, env, command in everything() if f"{CASE}={self.mark}" in env and is_wanted(command)]

    def orphans(self) -> list[int]:
        """What still runs a while after the tuner is gone."""
        until = time.monotonic() + 240
        left = self.processes()
        while left and time.monotonic() < until:
            time.sleep(0.1)
            left = self.processes()
        return left

    def record(self) -> RunRecord:
        return run_record.read(self.run_folder())


def everything() -> Iterator[tuple[int, list[str], str]]:
    """(pid, environment, command line) of every process that may be looked at; zombies have neither."""
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            env = (folder / "environ").read_bytes().decode(errors="replace").split("\0")
            yield int(folder.name), env, (folder / "cmdline").read_bytes().decode(errors="replace").replace("\0", " ")


def unusable(folder: Path, *packages: str) -> Path:
    """A folder for PYTHONPATH, where these packages end the process that imports them and say so."""
    for name in packages:
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text(f"raise SystemExit('{name} was imported')\n")
    return folder


def with_stand_in_gpu(
    folder: Path, cache: Path, *, templates: dict[str, dict[str, str]] | None = None, axes: dict[str, str] | None = None
) -> Machine:
    """A machine that seems to have an H200 and nsys."""
    machine = Machine(folder, cache, axes=axes or AXES)
    command = shlex.join([sys.executable, "-I", "-S", str(ON_PATH / "nsys_stand_in.py")])
    (folder / "bin").mkdir()
    version = '[ "$1" = --version ] && echo "NVIDIA Nsight Systems version 2025.1.1.0" && exit\n'
    (folder / "bin" / "nsys").write_text(f'#!/bin/sh\n{version}exec {command} "$@"\n')
    (folder / "bin" / "nsys").chmod(0o755)
    machine.env["PATH"] = f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
    machine.env["PYTHONPATH"] = os.pathsep.join(map(str, (ON_PATH, ROOT)))
    machine.env[warm_python.LIGHT] = "1"  # the torch of ON_PATH is imported where torch is
    templates_into(folder / "templates", {**STAND_INS, **(templates or {})})
    return machine


MEASURED = (
    "--templates",
    "templates",
    "--profiler",
    "nsys",
    "--screen_with",
    "nsys",
    "--search",
    "full",
    "--iters",
    "5",
    "--no_heuristics",
)
PREDICTED = ("--arch", "sm_90")


def rows_of(machine: Machine) -> dict[str, Any]:
    """What a run found, less what depends on when and how often it was started."""
    found: dict[str, Any] = {}
    record = machine.record()
    tuned = results.read(machine.run_folder() / "tuned.yaml")
    for row in tuned.rows:
        facts = {key: row.facts.get(key) for key in ("source", "median_us", "predicted_us", "runner_up")}
        facts["verified"] = row.verified.value
        found[row.problem.key] = (row.config.name if row.config else "", facts)
    for size in record.sizes:
        table = run_record.read_table(machine.run_folder(), size.key).set_index("name").sort_index()
        columns = ["status", "rule", "screen_us", "screen_samples", "finals_us", "registers", "message"]
        for column in ("registers", "screen_samples"):  # whole where all of a table have one
            table[column] = table[column].astype(float)
        rows = table[columns].astype(str).to_dict("index")
        found[f"{size.key} table"] = rows
        found[f"{size.key} counts"] = (size.total, size.counts, size.chosen, size.failure)
    return found


def hangs_at(machine: Machine, name: str) -> bool:
    """Whether the launcher that runs now is at the kernel that hangs, which has ``name`` in its own."""
    if not machine.find(lambda command: "--plan" in command):
        return False
    starts = sorted(machine.run_folder().glob("raw/*/start*/plan.json"))
    journal = starts[-1].with_name("journal.jsonl") if starts else None
    lines = journal.read_text().splitlines() if journal and journal.exists() else []
    last = json.loads(lines[-1]) if lines and lines[-1].endswith("}") else {}
    return last.get("event") == "begin" and name in last["name"]


def statuses_of(machine: Machine) -> dict[str, dict[str, str]]:
    """Where each configuration ended, by size."""
    return statuses_of_run(machine.run_folder())


def statuses_of_run(folder: Path) -> dict[str, dict[str, str]]:
    return {
        size.key: dict(run_record.read_table(folder, size.key).set_index("name")["status"])
        for size in run_record.read(folder).sizes
    }


def require_complete_states(machine: Machine) -> None:
    """Every configuration of every size ended somewhere, exactly once."""
    for size in machine.record().sizes:
        assert sum(size.counts.values()) == size.total > 0, size


@dataclass(frozen=True)
class Undisturbed:
    """A run that nothing disturbed, and what it found. Processes of the tests hand it on pickled."""

    machine: Machine
    rows: dict[str, Any]

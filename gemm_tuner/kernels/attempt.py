"""Builds or runs a spec's program once, in a separate process, and evaluates the outcome."""

from __future__ import annotations

import os
import re
import signal
from dataclasses import dataclass

from gemm_tuner.core.records import Status
from gemm_tuner.kernels import metrics
from gemm_tuner.kernels.command_lines import Lines, filled, not_there
from gemm_tuner.kernels.metrics import NoMetric, Reading
from gemm_tuner.kernels.program_spec import Instance, ProgramSpec
from gemm_tuner.system.child_output import ChildOutput, run_child
from gemm_tuner.system.processes import how_it_ended

REASON_CHARS = 300
NOTE = "note: "  # compilers, such as Mojo's, say in it which constraint failed
# A shell whose child was killed by a signal exits with 128 plus the signal's number.
SHELL_SIGNAL = 128
CRASHES = (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGKILL, signal.SIGTRAP)


@dataclass(frozen=True, slots=True)
class Outcome:
    """status: OK with a reading; otherwise ``reason`` says in one line what happened."""

    status: Status
    reason: str = ""
    reading: Reading | None = None


def build(spec: ProgramSpec, lines: Lines) -> Outcome | None:
    """Runs the build command; None if it succeeds."""
    environ = {**os.environ, **lines.env}
    if fault := not_there(lines.build, spec.cwd, environ):
        return Outcome(Status.COMPILE_ERROR, f"build: {fault}")
    child = run_child(lines.build, environ, spec.cwd, spec.build_timeout_s)
    if child.timed_out:
        return Outcome(
            Status.COMPILE_TIMEOUT, f"build: no end after {spec.build_timeout_s:g} s; build_timeout_s allows more"
        )
    if child.exit_status:
        return Outcome(Status.COMPILE_ERROR, f"build: {_ended(child)}")
    return None


def run(spec: ProgramSpec, instance: Instance, lines: Lines) -> Outcome:
    """Runs the program once and reads its metric."""
    environ = {**os.environ, **lines.env}
    if fault := not_there(lines.run, spec.cwd, environ):
        return Outcome(Status.LAUNCH_ERROR, fault)
    child = run_child(lines.run, environ, spec.cwd, spec.timeout_s)
    if (ended := fault_of(spec, child)) is not None:
        return ended
    try:
        reading = metrics.read(spec.metric, child.stdout, child.stderr)
    except NoMetric as error:
        return Outcome(Status.WRONG, str(error))
    if fault := other_name(spec, instance, reading, child.stdout):
        return Outcome(Status.WRONG, fault)
    return Outcome(Status.OK, reading=reading)


def fault_of(spec: ProgramSpec, child: ChildOutput) -> Outcome | None:
    """The failure of a run of the program that has ended; None if its output can be read."""
    if child.timed_out:
        return Outcome(Status.TIMEOUT, f"no end after {spec.timeout_s:g} s; timeout_s allows more")
    if child.exit_status:
        is_crash = child.exit_status < 0 or child.exit_status - SHELL_SIGNAL in CRASHES
        return Outcome(Status.CRASHED if is_crash else Status.LAUNCH_ERROR, _ended(child))
    return None


def other_name(spec: ProgramSpec, instance: Instance, reading: Reading, stdout: str) -> str:
    """Why the program seems to have ignored its parameters (its name lacks ``expect_name``); "" if it has not."""
    expected = filled(spec.expect_name, instance.values)
    # M=1 must not match M=16, M=1.5 or BM=1.
    if not expected or re.search(rf"(?<![\w.]){re.escape(expected)}(?!\w|\.\d)", reading.case or stdout):
        return ""
    seen = f"its case is {reading.case!r}" if reading.case else "its output has none such"
    return f"expect_name {expected!r}, but {seen}: it does not take a parameter"


def _ended(child: ChildOutput) -> str:
    """How a child ended, and the first error of its output with the note that follows it, else the last line."""
    how = how_it_ended(child.exit_status)
    if child.exit_status - SHELL_SIGNAL in CRASHES:
        how += f", {signal.Signals(child.exit_status - SHELL_SIGNAL).name} in a shell"
    said = [line.strip() for line in (child.stderr.strip() or child.stdout).splitlines() if line.strip()]
    errors = [index for index, line in enumerate(said) if "error" in line.lower()]
    if not errors:
        return f"{how}: {said[-1][:REASON_CHARS]}" if said else how
    first, after = errors[0], errors[1] if len(errors) > 1 else len(said)
    note = next((line.partition(NOTE)[2] for line in said[first + 1 : after] if NOTE in line), "")[: REASON_CHARS // 2]
    kept = said[first][: REASON_CHARS - len(note)]
    return f"{how}: {kept}; {note}" if note else f"{how}: {kept}"

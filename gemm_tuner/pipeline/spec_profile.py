"""Runs a spec's program under a profiler, with the times of its GPU kernels as the metric."""

from __future__ import annotations

import os
import tempfile
from dataclasses import replace
from pathlib import Path

from gemm_tuner import profilers
from gemm_tuner.core.errors import EnvironmentFault, UserError
from gemm_tuner.core.records import Status
from gemm_tuner.kernels import attempt
from gemm_tuner.kernels.attempt import Outcome
from gemm_tuner.kernels.command_lines import Lines, not_there
from gemm_tuner.kernels.metrics import Reading
from gemm_tuner.kernels.program_spec import LAST, MEDIAN, PROFILE, Instance, ProgramSpec
from gemm_tuner.profilers import AUTO, PROFILERS, Profiler, TraceError
from gemm_tuner.system.child_output import run_child

EXPORT_LIMIT_S = 300.0
NAMED = 3
# The profilers that can time arbitrary programs.
TOOLS = ("nsys", "rocprofv3", "rocprof", "ncu")


def with_profiler(spec: ProgramSpec, asked: str) -> ProgramSpec:
    """The spec with an installed profiler. asked: value of --profiler; "" for the spec's own.

    Raises UserError for a tool that cannot time programs, and if the spec also has a metric; EnvironmentFault for a
    tool that is not installed.
    """
    if spec.metric.kind != PROFILE:
        if asked:
            hint = 'profile: {kernels: "matmul.*"} in place of metric'
            raise UserError("the spec does not say which kernels count", where="--profiler", accepted=hint)
        return spec
    name = asked or spec.profiler
    if name == AUTO:
        found = next((one.name for one in tools() if one.version() is not None), None)
        if found is None:
            hints = "; or ".join(one.install_hint for one in tools())
            raise EnvironmentFault("no profiler for programs is installed", where="--profiler", hint=hints)
        return replace(spec, profiler=found)
    tool_of(name)
    return replace(spec, profiler=name)


def tools() -> list[Profiler]:
    by_name = {one.name: one for one in PROFILERS}
    return [by_name[name] for name in TOOLS]


def tool_of(name: str) -> Profiler:
    if name not in TOOLS:
        raise UserError(f"{name} times no program", where="--profiler", accepted=", ".join((AUTO, *TOOLS)))
    backend = next(one for one in tools() if one.name == name).backends[0]
    return profilers.select(name, backend)


def run(spec: ProgramSpec, instance: Instance, lines: Lines, profiler: Profiler, folder: Path) -> Outcome:
    """Runs the program once under the profiler. folder: of the run; the trace is deleted afterwards."""
    environ = {**os.environ, **lines.env, **profiler.environment()}
    if fault := not_there(lines.run, spec.cwd, environ):
        return Outcome(Status.LAUNCH_ERROR, fault)
    with tempfile.TemporaryDirectory(prefix="trace_", dir=folder) as made:
        where = Path(made).resolve()
        child = run_child(profiler.whole_command(list(lines.run), where), environ, spec.cwd, spec.timeout_s)
        if (ended := attempt.fault_of(spec, child)) is not None:
            return ended
        if fault := attempt.other_name(spec, instance, Reading(0.0), child.stdout):
            return Outcome(Status.WRONG, fault)
        for export in profiler.export_commands(where):
            if run_child(export, environ, spec.cwd, EXPORT_LIMIT_S).exit_status == 0:
                break
        try:
            return read(profiler, where, spec.metric.pattern, spec.select)
        except TraceError as error:
            return Outcome(Status.WRONG, f"under {profiler.name}: {error.what}")


def read(profiler: Profiler, where: Path, pattern: str, select: str = MEDIAN) -> Outcome:
    """The sum over all kernels that match ``pattern`` of the median (or last) time of each, ms. Raises TraceError."""
    trace = profiler.read(where)
    ours = trace[trace["kernel_name"].str.contains(pattern, regex=True)]
    if ours.empty:
        names = list(dict.fromkeys(trace["kernel_name"]))
        more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
        return Outcome(Status.WRONG, f"no kernel matches {pattern!r}; it ran {', '.join(names[:NAMED])}{more}")
    by_kernel = ours.groupby("kernel_name")["duration_ns"]
    times = by_kernel.last() if select == LAST else by_kernel.median()
    further = {"kernels": str(len(times))}
    return Outcome(Status.OK, reading=Reading(float(times.sum()) / 1e6, iters=str(len(ours)), further=further))

"""Collects the facts of the machine; ``findings`` evaluates them."""

from __future__ import annotations

import os
import shutil
import sysconfig
import tempfile
from dataclasses import dataclass
from pathlib import Path

import psutil

from gemm_tuner import profilers
from gemm_tuner.core.errors import UserError
from gemm_tuner.core.language import language_of
from gemm_tuner.core.workload import workload_of
from gemm_tuner.measure import device as devices
from gemm_tuner.measure.device import Machine
from gemm_tuner.measure.machine_check import gpus
from gemm_tuner.measure.machine_check.gpus import GpuState
from gemm_tuner.space import space
from gemm_tuner.system.control_groups import memory_limit_bytes
from gemm_tuner.system.cores import usable_cores
from gemm_tuner.system.input_files import text_in

HIDING_VARIABLES = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")


@dataclass(frozen=True, slots=True)
class Tool:
    """A profiler. version: None if it is not installed or does not start."""

    name: str
    version: str | None
    backends: tuple[str, ...]
    install_hint: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run would use. The faults say why it cannot, and what to do.

    arch, backend: what kernels are compiled for. source: "measured" or "predicted".
    stand_in: a sentence that names the other architecture whose space file is used; "" for its own.
    absent: (kernel family of that file, what it takes to have it) for those that are not installed.
    interpreter_fault: why Triton's interpreter, in which configurations with predicted times are checked, does not run.
    """

    arch: str
    backend: str
    space_file: str
    space_fault: str
    profiler: str
    profiler_fault: str
    source: str
    stand_in: str = ""
    absent: tuple[tuple[str, str], ...] = ()
    interpreter_fault: str = ""


@dataclass(frozen=True, slots=True)
class Facts:
    """machine: as torch reports it. machine_fault: why torch could not be queried. hiding: variables that hide GPUs."""

    machine: Machine
    machine_fault: str
    states: tuple[GpuState, ...]
    tools: tuple[Tool, ...]
    around: Surroundings
    plan: Plan
    hiding: tuple[tuple[str, str], ...] = ()


def gather(output_dir: Path, rules_dir: Path, profiler: str, arch: str) -> Facts:
    """Collects all facts. Problems of the machine are part of them and are not raised. arch: "" for that of the GPU."""
    machine, fault = Machine((), {}, ""), ""
    try:
        machine = devices.look()
    except UserError as error:
        fault = error.one_line()
    hiding = tuple((name, os.environ[name]) for name in HIDING_VARIABLES if name in os.environ)
    return Facts(
        machine,
        fault,
        gpus.look(),
        tools(),
        look_around(output_dir),
        plan(machine, rules_dir, profiler, arch),
        hiding,
    )


def tools() -> tuple[Tool, ...]:
    """Every supported profiler with its version."""
    return tuple(
        Tool(one.name, one.version(), tuple(b for b in ("cuda", "hip") if one.supports(b)), one.install_hint)
        for one in profilers.PROFILERS
    )


def plan(machine: Machine, rules_dir: Path, profiler: str, arch: str) -> Plan:
    """What a run would use on the first GPU of this machine, or without a GPU."""
    own = str(machine.gpus[0]["arch"]) if machine.gpus else ""
    wanted = arch or own or devices.DEFAULT_ARCH
    backend = "hip" if wanted.startswith("gfx") else "cuda"
    file, space_fault, stand_in, tool, tool_fault = "", "", "", "", ""
    absent: tuple[tuple[str, str], ...] = ()
    try:
        path = space.space_path(rules_dir, wanted)
        absent = tuple(workload_of("gemm").absent(space.load(path, wanted).families).items())
        file, stand_in = str(path), space.stand_in_note(rules_dir, wanted)
    except UserError as error:
        space_fault = error.one_line()
    measurable = bool(own) and wanted == own
    try:
        tool = profilers.select(profiler, backend).name
    except UserError as error:
        tool_fault = error.one_line()
    source = "measured" if measurable and file and tool else "predicted"
    unchecked = _interpreter_fault() if source == "predicted" else ""
    return Plan(wanted, backend, file, space_fault, tool, tool_fault, source, stand_in, absent, unchecked)


def _interpreter_fault() -> str:
    try:
        language_of("triton").require_interpreter()
    except UserError as error:
        return error.one_line()
    return ""


_COMPILERS = ("gcc", "clang", "cc")  # in the order in which Triton looks for one


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Facts of the host.

    cores:              number of cores that this process may use.
    memory_bytes:       memory of the machine.
    memory_limit_bytes: limit of the control group; None without one or if unknown.
    output_folder:      the output folder, or its closest existing parent.
    write_fault:        why it cannot be written; "" if it can.
    compiler:           path of the C compiler; "" without one.
    python_headers:     whether Python.h exists.
    counters_for_root:  NVIDIA's driver lets only root profile, and this user is not root.
    foreign:            environment variables that would change kernels; a run removes them.
    """

    cores: int
    memory_bytes: int
    memory_limit_bytes: int | None
    output_folder: Path
    free_bytes: int
    write_fault: str
    compiler: str
    python_headers: bool
    counters_for_root: bool
    foreign: tuple[str, ...]


def look_around(output_dir: Path, root: Path = Path("/")) -> Surroundings:
    """Collects the facts of the host. root: the folder that contains proc and sys."""
    folder = next(path for path in (output_dir.resolve(), *output_dir.resolve().parents) if path.is_dir())
    return Surroundings(
        cores=usable_cores(root),
        memory_bytes=psutil.virtual_memory().total,
        memory_limit_bytes=memory_limit_bytes(root),
        output_folder=folder,
        free_bytes=shutil.disk_usage(folder).free,
        write_fault=_write_fault(folder),
        compiler=_compiler(),
        python_headers=(Path(sysconfig.get_path("include")) / "Python.h").is_file(),
        counters_for_root="RmProfilingAdminOnly: 1" in text_in(root / "proc/driver/nvidia/params")
        and os.geteuid() != 0,
        foreign=tuple(name for name in language_of("triton").removed_variables if name in os.environ),
    )


def _compiler() -> str:
    named = os.environ.get("CC", "")
    return next(filter(None, (shutil.which(name) for name in ((named,) if named else _COMPILERS))), "")


def _write_fault(folder: Path) -> str:
    try:
        with tempfile.TemporaryFile(dir=folder):
            return ""
    except OSError as error:
        return error.strerror or str(error)

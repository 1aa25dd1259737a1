"""All that is known of the machine, gathered once and judged elsewhere."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from gemm_tuner import profilers
from gemm_tuner.core.errors import UserError
from gemm_tuner.measure import device as devices
from gemm_tuner.measure.device import Machine
from gemm_tuner.measure.machine_check import gpus, surroundings
from gemm_tuner.measure.machine_check.gpus import GpuState
from gemm_tuner.measure.machine_check.surroundings import Surroundings
from gemm_tuner.space import space

HIDING_VARIABLES = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")


@dataclass(frozen=True, slots=True)
class Tool:
    """A profiler. version: None when it is not installed or does not start."""

    name: str
    version: str | None
    backends: tuple[str, ...]
    install_hint: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run would use. Faults are why it cannot, in words with what to do.

    arch, backend: what kernels are compiled for. source: measured or predicted.
    stand_in: says whose space file it is, where the architecture has none.
    """

    arch: str
    backend: str
    space_file: str
    space_fault: str
    profiler: str
    profiler_fault: str
    source: str
    stand_in: str = ""


@dataclass(frozen=True, slots=True)
class Facts:
    """machine: as torch sees it. machine_fault: why nothing could be asked. hiding: variables that hide GPUs."""

    machine: Machine
    machine_fault: str
    states: tuple[GpuState, ...]
    tools: tuple[Tool, ...]
    around: Surroundings
    plan: Plan
    hiding: tuple[tuple[str, str], ...] = ()


def gather(output_dir: Path, rules_dir: Path, profiler: str, arch: str) -> Facts:
    """arch: empty for that of the GPU. Raises nothing for what is wrong with the machine: that is among the facts."""
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
        surroundings.look(output_dir),
        plan(machine, rules_dir, profiler, arch),
        hiding,
    )


def tools() -> tuple[Tool, ...]:
    """Every profiler that the tuner knows; asks each for its version."""
    return tuple(
        Tool(one.name, one.version(), tuple(b for b in ("cuda", "hip") if one.supports(b)), one.install_hint)
        for one in profilers.PROFILERS
    )


def plan(machine: Machine, rules_dir: Path, profiler: str, arch: str) -> Plan:
    """What a run on this machine's first GPU would use, or without one."""
    own = str(machine.gpus[0]["arch"]) if machine.gpus else ""
    wanted = arch or own or devices.DEFAULT_ARCH
    backend = "hip" if wanted.startswith("gfx") else "cuda"
    file, space_fault, stand_in, tool, tool_fault = "", "", "", "", ""
    try:
        path = space.space_path(rules_dir, wanted)
        space.load(path, wanted)
        file, stand_in = str(path), space.stand_in_note(rules_dir, wanted)
    except UserError as error:
        space_fault = error.one_line()
    measurable = bool(own) and wanted == own
    try:
        tool = profilers.select(profiler, backend).name
    except UserError as error:
        tool_fault = error.one_line()
    source = "measured" if measurable and file and tool else "predicted"
    return Plan(wanted, backend, file, space_fault, tool, tool_fault, source, stand_in)

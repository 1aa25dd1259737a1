"""Derives findings from the facts of a machine: what is wrong, and the command that fixes it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from gemm_tuner.measure.machine_check.facts import Facts
from gemm_tuner.measure.machine_check.gpus import NOT_LOCKED, GpuState
from gemm_tuner.system.nvml import PROHIBITED, SHARED

GIB = 2**30
LEAST_FREE_BYTES = GIB  # for a run's compiled kernels, tables and traces
WORKER_BYTES = GIB // 2  # memory to allow for one compile worker
UNSEEN_MIB = 1024  # GPU memory in use that belongs to no visible process; a driver uses less


class Level(str, Enum):
    """BLOCKS: nothing can be measured. WARNING: times may be wrong, or a run may fail. NOTE: for information."""

    BLOCKS = "blocks"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Finding:
    """A finding. mend: the command or action that fixes it; "" if there is nothing to do."""

    level: Level
    what: str
    mend: str = ""


def judge(facts: Facts) -> list[Finding]:
    """All findings, those that block first."""
    found = [*_gpu(facts), *_plan(facts), *_disk(facts), *_build(facts), *_memory(facts)]
    for state in facts.states:
        found.extend(_state(state))
    found.extend(_environment(facts))
    return sorted(found, key=lambda one: list(Level).index(one.level))


def measurable(findings: Iterable[Finding]) -> bool:
    return not any(finding.level == Level.BLOCKS for finding in findings)


def _gpu(facts: Facts) -> Iterable[Finding]:
    """Findings if torch sees no GPU."""
    if facts.machine_fault:
        yield Finding(Level.BLOCKS, facts.machine_fault, "pip install --force-reinstall torch")
        return
    for package in ("torch", "triton"):
        if not facts.machine.versions.get(package):
            yield Finding(Level.BLOCKS, f"{package} is not installed", f"pip install {package}")
    if facts.machine.gpus or not facts.machine.versions.get("torch"):
        return
    if not facts.states:
        yield Finding(Level.BLOCKS, "there is no GPU that torch or a driver's tool sees")
        return
    listed = ", ".join(dict.fromkeys(state.name for state in facts.states))
    hidden = ", ".join(f"{name}={value}" for name, value in facts.hiding)
    if hidden:
        yield Finding(Level.BLOCKS, f"torch sees no GPU and the driver lists {listed}: {hidden}",
                      f"unset {' '.join(name for name, _ in facts.hiding)}")  # fmt: skip
        return
    what = f"torch {facts.machine.versions['torch']} sees no GPU and the driver lists {listed}"
    kind = "CUDA" if facts.states[0].vendor == "nvidia" else "ROCm"
    mend = f"install torch built for {kind} and this driver: https://pytorch.org/get-started"
    yield Finding(Level.BLOCKS, what, mend)


def _plan(facts: Facts) -> Iterable[Finding]:
    plan, own = facts.plan, str(facts.machine.gpus[0]["arch"]) if facts.machine.gpus else ""
    if plan.space_fault:
        yield Finding(Level.BLOCKS, plan.space_fault)
    if plan.interpreter_fault:
        yield Finding(Level.WARNING, f"without a GPU no configuration can be checked: {plan.interpreter_fault}")
    if plan.stand_in:
        yield Finding(Level.NOTE, plan.stand_in)
    for why in dict.fromkeys(why for _, why in plan.absent):
        families = ", ".join(family for family, its in plan.absent if its == why)
        yield Finding(Level.NOTE, f"without the kernel families {families}", why)
    if own and plan.profiler_fault:
        yield Finding(Level.BLOCKS, plan.profiler_fault)
    if own and plan.profiler == "ncu" and facts.around.counters_for_root:
        what = "the driver gives performance counters to root alone, and ncu needs them"
        yield Finding(
            Level.BLOCKS, what, "--profiler nsys or proton, or load nvidia with NVreg_RestrictProfilingToAdminUsers=0"
        )
    if own and plan.arch != own:
        yield Finding(
            Level.BLOCKS, f"this GPU is {own}: for {plan.arch} times can only be predicted", "leave out --arch"
        )
    if len({(gpu["name"], gpu["arch"]) for gpu in facts.machine.gpus}) > 1:
        listed = ", ".join(f"{gpu['id']}: {gpu['name']}" for gpu in facts.machine.gpus)
        yield Finding(Level.NOTE, f"the GPUs are of several kinds ({listed})", "choose those of one kind by --gpu_ids")


def _disk(facts: Facts) -> Iterable[Finding]:
    folder, free = facts.around.output_folder, facts.around.free_bytes
    if facts.around.write_fault:
        yield Finding(
            Level.BLOCKS, f"{folder} cannot be written: {facts.around.write_fault}", "choose another --output_dir"
        )
    elif free < LEAST_FREE_BYTES:
        yield Finding(
            Level.WARNING, f"{folder} has {free / GIB:.1f} GiB free", "free some, or choose another --output_dir"
        )


def _build(facts: Facts) -> Iterable[Finding]:
    """Triton needs a C compiler to build its launcher at the first launch."""
    missing = [
        name
        for name, there in (("gcc", facts.around.compiler), ("python3-dev", facts.around.python_headers))
        if not there
    ]
    if missing and facts.machine.gpus:
        words = {"gcc": "no C compiler", "python3-dev": "no Python.h"}
        what = f"{' and '.join(words[name] for name in missing)}: Triton cannot build its launcher"
        yield Finding(Level.BLOCKS, what, f"apt-get install {' '.join(missing)}")


def _memory(facts: Facts) -> Iterable[Finding]:
    limits = [limit for limit in (facts.around.memory_bytes, facts.around.memory_limit_bytes) if limit]
    workers = facts.around.cores
    if limits and min(limits) < workers * WORKER_BYTES:
        fit = max(1, min(limits) // WORKER_BYTES)
        what = f"{min(limits) / GIB:.1f} GiB of memory is little for {workers} compile workers"
        yield Finding(Level.WARNING, what, f"--num_threads {fit}")


def _state(state: GpuState) -> Iterable[Finding]:
    """Conditions that make the times of one GPU wrong or noisy."""
    name = f"GPU {state.index} ({state.name})"
    if state.compute_mode == PROHIBITED:
        yield Finding(Level.WARNING, f"{name} is in compute mode Prohibited: no process may use it", _share(state))
    elif state.compute_mode != SHARED:
        what = f"{name} is in an exclusive compute mode: processes of the finals start one after another, which takes"
        yield Finding(Level.NOTE, f"{what} longer, and no other process may use it", _share(state))
    if state.processes:
        listed = ", ".join(f"{process.pid} ({process.name})" for process in state.processes)
        what = f"{name} is used by {listed}: times will be wrong"
        yield Finding(Level.WARNING, what, "wait for these processes, or choose another GPU by --gpu_ids")
    elif (state.memory_used_mib or 0) > UNSEEN_MIB or (state.utilization_pct or 0) > 10:
        used = f"{state.memory_used_mib or 0} MiB in use, {state.utilization_pct or 0} % busy"
        what = f"{name} has {used} by processes that cannot be seen from here"
        yield Finding(Level.WARNING, what, "look for them on the host, or choose another GPU by --gpu_ids")
    if state.slowed:
        yield Finding(
            Level.WARNING, f"{name} is slowed down by {state.slowed}", "let it cool, or check its power supply"
        )
    if state.mig:
        yield Finding(Level.NOTE, f"{name} is split (MIG): times are those of a part")
    if state.clocks == NOT_LOCKED:
        yield Finding(Level.NOTE, f"{name}: clocks are not locked; times of two runs differ by more", _lock(state))


def _share(state: GpuState) -> str:
    return f"sudo nvidia-smi -i {state.index} -c DEFAULT"


def _lock(state: GpuState) -> str:
    if state.vendor == "amd":
        return "sudo rocm-smi --setperflevel high"
    clock = state.max_sm_clock_mhz
    return f"sudo nvidia-smi -i {state.index} --lock-gpu-clocks={clock},{clock}; undo by --reset-gpu-clocks"


def _environment(facts: Facts) -> Iterable[Finding]:
    for name in facts.around.foreign:
        yield Finding(Level.NOTE, f"{name} is set, and left out of the tuner's processes", f"unset {name}")

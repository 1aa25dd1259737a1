"""Which kernels the sizes of a run need, each compiled once, and how compile results affect the configurations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import groupby, zip_longest
from operator import itemgetter
from pathlib import Path

from gemm_tuner.compile.task_queue import TaskKey, key_of
from gemm_tuner.consumers.consumer_kernel import ConsumerKernel
from gemm_tuner.core.language import CompileTask
from gemm_tuner.core.records import CompileResult, Config, Device, Problem, Status, Target
from gemm_tuner.core.script import Script
from gemm_tuner.core.workload import workload_of
from gemm_tuner.source import codegen
from gemm_tuner.space.size_state import Named, SizeState

# A kernel that spills a few registers can still win. Unit: bytes of stack (NVIDIA), registers (AMD).
SPILLS_ALLOWED = {"cuda": 64, "hip": 16, "cpu": 0}

Wanted = Iterable[tuple[Problem, Config]]


def write_scripts(
    templates_dir: Path,
    out_dir: Path,
    wanted: Wanted,
    target: Target,
    kernels: Iterable[ConsumerKernel] = (),
) -> dict[tuple[str, str], Script]:
    """Writes one script per (family, signature) and returns them by these. kernels: servers' kernels, each a family."""
    of_family = {kernel.family: kernel for kernel in kernels}
    by_script: dict[tuple[str, str], dict[Config, None]] = {}  # each once, in order
    classes: dict[str, Problem] = {}
    for problem, of_problem in groupby(wanted, key=itemgetter(0)):
        signature = problem.signature
        classes.setdefault(signature, problem)
        for _, config in of_problem:
            by_script.setdefault((config.family, signature), {})[config] = None
    return {
        (family, signature): codegen.write_script(
            templates_dir, out_dir, family, classes[signature], configs, target, of_family.get(family)
        )
        for (family, signature), configs in by_script.items()
    }


def tasks_for(
    wanted: Wanted,
    scripts: dict[tuple[str, str], Script],
    target: Target,
    *,
    longest_first: bool = True,
) -> list[CompileTask]:
    """One task per binary, longest first or in the given order. Sizes with equal ``specialization`` and configurations
    with equal ``kernel_symbol`` share a binary."""
    tasks: dict[TaskKey, tuple[float, CompileTask]] = {}
    for problem, config in wanted:
        task = task_for(scripts, problem, config, target)
        tasks.setdefault(key_of(task), (workload_of(problem.kind).compile_cost(config), task))
    in_order = sorted(tasks.values(), key=lambda pair: -pair[0]) if longest_first else tasks.values()
    return [task for _, task in in_order]


def task_for(scripts: dict[tuple[str, str], Script], problem: Problem, config: Config, target: Target) -> CompileTask:
    """The task that compiles the kernels of a configuration for a size."""
    special = workload_of(problem.kind).specialization(problem, config, target)
    return CompileTask(scripts[config.family, problem.signature], config.kernel_symbol, special, problem)


def support_task(like: CompileTask) -> CompileTask:
    """The task for the kernels of the measurement itself, which must not be compiled in the profiled process either.
    like: any task of the run; its problem is used."""
    return CompileTask(None, "", "", like.problem)


def record_compiles(
    state: SizeState,
    names: Iterable[str],
    results: Mapping[TaskKey, CompileResult],
    scripts: dict[tuple[str, str], Script],
    device: Device,
    counted: set[TaskKey],
) -> None:
    """Records the compile results of the named configurations in a size's state, and marks those that cannot run (too
    much shared memory) or are too slow to try (too many spills; never for configurations that the user gave).

    counted: the binaries whose compile time is already attributed to some size; updated.
    """
    allowed = SPILLS_ALLOWED[device.target.backend]
    for name in names:
        key = key_of(task_for(scripts, state.problem, state.kept[name], device.target))
        result = results.get(key)
        if result is None:
            continue
        state.record_compile(name, replace(result, seconds=0.0) if key in counted else result)
        counted.add(key)
        if result.status != Status.OK:
            continue
        if result.shared_bytes > device.shared_memory_bytes:
            text = f"{result.shared_bytes} bytes of shared memory, the limit is {device.shared_memory_bytes}"
            state.record(name, Status.OUT_OF_RESOURCES, text)
        elif result.spills > allowed and name not in state.given:
            state.record(name, Status.SPILLED, f"spills {result.spills}, more than {allowed}")


def interleaved(wanted: Named) -> list[tuple[Problem, Config]]:
    """The named configurations, interleaved over the sizes: the first of each size, then the second of each."""
    rows = [[(state.problem, state.kept[name]) for name in names] for state, names in wanted]
    return [pair for turn in zip_longest(*rows) for pair in turn if pair is not None]

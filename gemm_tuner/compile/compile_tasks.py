"""What the sizes of a run need compiled, each kernel once, and what the results mean for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from gemm_tuner.consumers.consumer_kernel import ConsumerKernel
from gemm_tuner.core.records import CompileResult, Device, KernelConfig, Status, Target
from gemm_tuner.gemm.problem import GemmProblem
from gemm_tuner.languages.triton.compile_worker import CompileTask
from gemm_tuner.source import codegen
from gemm_tuner.source.codegen import Script, specialization
from gemm_tuner.space.size_state import SizeState

# A kernel that spills a few registers can still win; NVIDIA counts bytes of stack, AMD registers.
SPILLS_ALLOWED = {"cuda": 64, "hip": 16}

Binary = tuple[str, str, str]  # script, binary_name, specialisation


def write_scripts(
    templates_dir: Path,
    out_dir: Path,
    wanted: Iterable[tuple[GemmProblem, KernelConfig]],
    target: Target,
    kernels: Iterable[ConsumerKernel] = (),
) -> dict[tuple[str, str], Script]:
    """One script a family and problem class, by (family, class key). kernels: servers' own, each a family."""
    of_family = {kernel.family: kernel for kernel in kernels}
    by_script: dict[tuple[str, str], dict[str, KernelConfig]] = {}
    classes: dict[str, GemmProblem] = {}
    for problem, config in wanted:
        classes.setdefault(problem.signature, problem)
        by_script.setdefault((config.family, problem.signature), {})[config.name] = config
    return {
        (family, signature): codegen.write_script(
            templates_dir, out_dir, family, classes[signature], configs.values(), target, of_family.get(family)
        )
        for (family, signature), configs in by_script.items()
    }


def tasks_for(
    wanted: Iterable[tuple[GemmProblem, KernelConfig]],
    scripts: dict[tuple[str, str], Script],
    target: Target,
    *,
    longest_first: bool = True,
) -> list[CompileTask]:
    """One task a binary, longest first or as they are wanted. Sizes of one divisibility class share their binaries,
    and so do configurations of one ``binary_name``."""
    tasks: dict[Binary, tuple[float, CompileTask]] = {}
    for problem, config in wanted:
        key = binary_of(scripts, problem, config, target)
        if key not in tasks:
            tasks[key] = (compile_cost(config), CompileTask(*key, problem))
    in_order = sorted(tasks.values(), key=lambda pair: -pair[0]) if longest_first else tasks.values()
    return [task for _, task in in_order]


def binary_of(
    scripts: dict[tuple[str, str], Script], problem: GemmProblem, config: KernelConfig, target: Target
) -> Binary:
    """Names the binary that a size and a configuration run."""
    script = str(scripts[config.family, problem.signature].path)
    return script, config.kernel_symbol, specialization(problem, config, target)


def compile_cost(config: KernelConfig) -> float:
    """Orders tasks longest first: compile time grows with the accumulators of a thread and the tile."""
    tile = config.BLOCK_SIZE_M * config.BLOCK_SIZE_N
    return tile / (32 * config.num_warps) * config.BLOCK_SIZE_K + tile * config.num_stages / 64


def support_task(like: CompileTask) -> CompileTask:
    """The kernels of the measurement itself: they must not compile in the profiled process either."""
    return CompileTask("", "", "", like.problem)


def record_compiles(
    state: SizeState,
    names: Iterable[str],
    results: Mapping[Binary, CompileResult],
    scripts: dict[tuple[str, str], Script],
    device: Device,
    booked: set[Binary],
) -> None:
    """Enters what compiling the named configurations gave and drops those that cannot or should not be timed;
    of those that the user gave only what cannot.

    booked: the binaries whose seconds are entered somewhere already; grows.
    """
    allowed = SPILLS_ALLOWED[device.target.backend]
    for name in names:
        key = binary_of(scripts, state.problem, state.kept[name], device.target)
        result = results.get(key)
        if result is None:
            continue
        state.record_compile(name, replace(result, seconds=0.0) if key in booked else result)
        booked.add(key)
        if result.status != Status.OK:
            continue
        if result.shared_bytes > device.shared_memory_bytes:
            text = f"{result.shared_bytes} bytes of shared memory, the limit is {device.shared_memory_bytes}"
            state.record(name, Status.OUT_OF_RESOURCES, text)
        elif result.spills > allowed and name not in state.given:
            state.record(name, Status.SPILLED, f"spills {result.spills}, more than {allowed}")

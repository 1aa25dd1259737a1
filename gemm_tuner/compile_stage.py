"""Compiles what the sizes of a run need, each kernel once, and books the results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gemm_tuner import codegen
from gemm_tuner.codegen import Script, specialisation
from gemm_tuner.compile_pool import CompilePool
from gemm_tuner.compile_worker import CompileTask
from gemm_tuner.errors import EnvironmentFault
from gemm_tuner.ledger import Ledger
from gemm_tuner.records import CompileResult, Device, GemmProblem, KernelConfig, Status, Target

# A kernel that spills a few registers can still win; NVIDIA counts bytes of stack, AMD registers.
SPILLS_ALLOWED = {"cuda": 64, "hip": 16}

Binary = tuple[str, str, str]  # script, binary_name, specialisation


@dataclass(frozen=True)
class Compiled:
    """Results by binary; how many were compiled now and how many came from the cache."""

    results: dict[Binary, CompileResult]
    fresh: int
    cached: int


def write_scripts(
    templates_dir: Path, out_dir: Path, wanted: Iterable[tuple[GemmProblem, KernelConfig]], target: Target
) -> dict[tuple[str, str], Script]:
    """One script a family and problem class, by (family, class key)."""
    by_script: dict[tuple[str, str], dict[str, KernelConfig]] = {}
    classes: dict[str, GemmProblem] = {}
    for problem, config in wanted:
        classes.setdefault(problem.class_key, problem)
        by_script.setdefault((config.family, problem.class_key), {})[config.name] = config
    return {
        (family, class_key): codegen.write_script(
            templates_dir, out_dir, family, classes[class_key], configs.values(), target
        )
        for (family, class_key), configs in by_script.items()
    }


def tasks_for(
    wanted: Iterable[tuple[GemmProblem, KernelConfig]], scripts: dict[tuple[str, str], Script], target: Target
) -> list[CompileTask]:
    """One task a binary, longest first. Sizes of one divisibility class share their binaries, and so do
    configurations of one ``binary_name``."""
    tasks: dict[Binary, tuple[float, CompileTask]] = {}
    for problem, config in wanted:
        key = binary_of(scripts, problem, config, target)
        if key not in tasks:
            tasks[key] = (compile_cost(config), CompileTask(*key, problem))
    return [task for _, task in sorted(tasks.values(), key=lambda pair: -pair[0])]


def binary_of(
    scripts: dict[tuple[str, str], Script], problem: GemmProblem, config: KernelConfig, target: Target
) -> Binary:
    """Names the binary that a size and a configuration run."""
    script = str(scripts[config.family, problem.class_key].path)
    return script, config.binary_name, specialisation(problem, config, target)


def compile_cost(config: KernelConfig) -> float:
    """Orders tasks longest first: compile time grows with the accumulators of a thread and the tile."""
    tile = config.BLOCK_SIZE_M * config.BLOCK_SIZE_N
    return tile / (32 * config.num_warps) * config.BLOCK_SIZE_K + tile * config.num_stages / 64


def compile_all(pool: CompilePool, tasks: Sequence[CompileTask], on_result: Callable[[], None]) -> Compiled:
    """Runs the tasks and the measurement's own kernels. Raises EnvironmentFault when even those fail."""
    results: dict[Binary, CompileResult] = {}
    for task, result in pool.run([support_task(tasks[0]), *tasks]):
        if not task.name:
            if result.status != Status.OK:
                raise EnvironmentFault(f"Triton compiles nothing for this target: {result.message}")
            continue
        results[task.script, task.name, task.specialisation] = result
        on_result()
    cached = sum(result.cached for result in results.values())
    return Compiled(results, len(results) - cached, cached)


def support_task(like: CompileTask) -> CompileTask:
    """The kernels of the measurement itself: they must not compile in the profiled process either."""
    return CompileTask("", "", "", like.problem)


def book(ledgers: Iterable[Ledger], compiled: Compiled, scripts: dict[tuple[str, str], Script], device: Device) -> None:
    """Enters the compile results into the ledgers and drops what cannot or should not be timed.

    The seconds of a binary are entered once, whatever the number of configurations and sizes that share it.
    """
    allowed = SPILLS_ALLOWED[device.target.backend]
    booked: set[Binary] = set()
    for ledger in ledgers:
        for name, config in ledger.kept.items():
            key = binary_of(scripts, ledger.problem, config, device.target)
            result = compiled.results.get(key)
            if result is None:
                continue
            ledger.record_compile(name, replace(result, seconds=0.0) if key in booked else result)
            booked.add(key)
            if result.status != Status.OK:
                continue
            if result.shared_bytes > device.shared_memory_bytes:
                text = f"{result.shared_bytes} bytes of shared memory, the limit is {device.shared_memory_bytes}"
                ledger.record(name, Status.OUT_OF_RESOURCES, text)
            elif result.spills > allowed:
                ledger.record(name, Status.SPILLED, f"spills {result.spills}, more than {allowed}")


def runnable(ledger: Ledger) -> list[str]:
    """The configurations that nothing has ruled out yet."""
    return [name for name in ledger.kept if "status" not in ledger.rows.get(name, {})]

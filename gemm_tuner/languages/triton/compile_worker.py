"""One compile worker: compiles for any target with a stand-in driver; no GPU, no torch.

It runs Triton's own JIT path, so that the disk-cache key is the one of the later launch (a
hand-built ``ASTSource`` hashes differently).
"""

from __future__ import annotations

import errno
import hashlib
import os
import signal
import sys
import time
import types
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import multiprocess

from gemm_tuner.core.records import CompileResult, Problem, Status, Target
from gemm_tuner.core.script import Script, text_sha
from gemm_tuner.core.workload import workload_of
from gemm_tuner.languages.triton.artifact import entry_name
from gemm_tuner.languages.triton.cached_compile import warm_up
from gemm_tuner.languages.triton.kernel_env import FOREIGN_VARIABLES
from gemm_tuner.system import memory
from gemm_tuner.system.guarded import die_with_the_starter

MESSAGE_CHARACTERS = 2000
# What says that nothing can be written, whatever the kernel: a full or read-only disk, a quota, a limit on files.
CANNOT_WRITE = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG)
NICENESS = 10
# What of Triton's metadata its launcher takes, beside the code: threads, shared memory, clusters, the shape of
# descriptors, memory that a kernel asks for.
LAUNCH_METADATA = (
    *("num_warps", "num_ctas", "cluster_dims", "shared", "tmem_size", "tensordesc_meta", "global_scratch_size"),
    *("launch_cooperative_grid", "launch_pdl"),
)


@dataclass(frozen=True, slots=True)
class CompileTask:
    """A kernel of a script, compiled for one specialization, which ``problem`` stands for.

    script: by content, so that any worker that has it can do the task; None for the measurement's own kernels.
    name: the Config.kernel_symbol, which configurations of the script may share. Empty for the measurement's own.
    """

    script: Script | None
    name: str
    specialization: str
    problem: Problem


class StandInDriver:
    """What the JIT asks of a driver when nothing is launched."""

    def __init__(self, target: Target) -> None:
        from triton.backends.compiler import GPUTarget

        arch: Any = int(target.arch.removeprefix("sm_")) if target.backend == "cuda" else target.arch
        self._target = GPUTarget(target.backend, arch, target.warp_size)

    def get_current_target(self) -> Any:
        return self._target

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0


def serve(
    connection: Any,
    target: Target,
    variables: dict[str, str],
    triton_key: str,
    log_path: str,
    scripts_dir: str,
    memory_bytes: int,
) -> None:
    """Answers CompileTasks with CompileResults until the parent closes the pipe or sends None.

    memory_bytes: what a compile may take beside what the worker has at its start. A text for an answer says that
    nothing can be written here. scripts_dir: holds the files of the tasks' scripts.
    """
    parent = multiprocess.parent_process()
    own_process_group(parent.pid if parent else os.getppid())
    for name in FOREIGN_VARIABLES:
        os.environ.pop(name, None)
    os.environ.update(variables)
    log = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    keep_torch_out()
    import triton

    triton.runtime.driver.set_active(StandInDriver(target))
    if triton_key:
        # Hashing libtriton takes 0.35 s a process; every worker would find the same.
        triton.runtime.cache.triton_key = lambda: triton_key
    memory.limit(memory_bytes)
    connection.send("ready")
    while True:
        try:
            task = connection.recv()
        except EOFError:
            return
        if task is None:
            return
        try:
            connection.send(compile_one(task, target, scripts_dir))
        except OSError as error:
            connection.send(f"compiled kernels cannot be written: {error}")


def keep_torch_out() -> None:
    """Triton's AMD backend imports torch (3 s, 300 MB a worker) only to ask whether an argument is a
    ``torch.Tensor``; no argument here is one."""
    stand_in = types.ModuleType("torch")
    stand_in.Tensor = type("Tensor", (), {})  # type: ignore[attr-defined]
    sys.modules.setdefault("torch", stand_in)


def own_process_group(starter: int) -> None:
    """A group of its own, so that a kill takes ptxas too; dies with its parent; leaves Ctrl-C to it.

    Nice, since what is timed meanwhile is launched by a process that must not wait for a core.
    """
    os.setsid()
    os.nice(NICENESS)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    die_with_the_starter(starter)


def compile_one(task: CompileTask, target: Target, scripts_dir: str) -> CompileResult:
    """Compiles all kernels of one GEMM call; the resources reported are the main kernel's.

    Raises OSError when the cache of compiled kernels cannot be written.
    """
    started = time.perf_counter()
    try:
        found = [warm_up(*launch) for launch in launches_of(task, scripts_dir)]
        compiled = [kernel for kernel, _ in found]
        main = compiled[0]
        kind = "cubin" if target.backend == "cuda" else "hsaco"
        registers, spills = resources(main.asm[kind], target)
        digest = code_hash([(kernel.asm[kind], kernel.metadata) for kernel in compiled], registers)
    except Exception as error:
        if isinstance(error, OSError) and error.errno in CANNOT_WRITE:
            raise
        text = f"{type(error).__name__}: {error or 'a compile may not take so much'}"[:MESSAGE_CHARACTERS]
        return CompileResult(
            task.name, task.specialization, Status.COMPILE_ERROR, time.perf_counter() - started, message=text
        )
    return CompileResult(
        name=task.name,
        specialization=task.specialization,
        status=Status.OK,
        seconds=time.perf_counter() - started,
        registers=registers,
        spills=spills,
        shared_bytes=int(main.metadata.shared),
        binary_hash=digest,
        cached=all(was_there for _, was_there in found),
        entries=tuple(entry_name(kernel.hash) for kernel in compiled),
    )


def launches_of(
    task: CompileTask, scripts_dir: str
) -> list[tuple[Any, tuple[int, ...], tuple[Any, ...], dict[str, Any], str]]:
    """(kernel, grid, positional, keyword, symbol) of what the task compiles."""
    from gemm_tuner.languages.triton.scripts import ShapeOnly

    if task.script is None:
        from gemm_tuner.languages.triton.support_kernels import support_calls

        calls = support_calls(ShapeOnly("int32", 1), ShapeOnly("int32", 1), 1)
        return [(kernel, grid, args, {}, symbol) for symbol, (kernel, grid, args) in calls.items()]
    script = loaded_script(task.script, scripts_dir)
    config = config_of_binary(task.script, scripts_dir)[task.name]
    calls_of_gemm = workload_of(task.problem.kind).compile_calls(script, config, task.problem)
    return [(kernel, grid, args, options, symbol) for symbol, kernel, grid, args, options in calls_of_gemm]


@lru_cache(maxsize=16)
def loaded_script(script: Script, scripts_dir: str) -> Any:
    """Imports a script. Raises ValueError for a file that is not what its name says: its binaries would be stored as
    those of the script that was written."""
    from gemm_tuner.languages.triton.scripts import load_script

    path = Path(scripts_dir, script.file)
    if text_sha(path.read_text("utf-8")) != script.text_sha:
        raise ValueError(f"{script.file} has been changed since it was written")
    return load_script(str(path))


@lru_cache(maxsize=16)
def config_of_binary(script: Script, scripts_dir: str) -> dict[str, dict[str, Any]]:
    """One of the configurations of a script that share a kernel, by its symbol."""
    return {config["binary"]: config for config in loaded_script(script, scripts_dir).CONFIGS.values()}


def resources(image: bytes, target: Target) -> tuple[int, int]:
    """(registers of a thread, spills) of a cubin or a code object."""
    from gemm_tuner.languages.triton import binary

    if target.backend == "cuda":
        found = binary.nvidia_resources(image, binary.cuobjdump_path())
    else:
        found = binary.amd_resources(image)
    return found.registers, found.spills


def code_hash(kernels: Iterable[tuple[bytes, Any]], registers: int) -> str:
    """sha256 over what the kernels of one call, (machine code, Triton's metadata) each, are and how they are launched;
    not over their names. ``registers``: of the main one."""
    from gemm_tuner.languages.triton import binary

    digest = hashlib.sha256(f"{registers} registers".encode())
    for image, metadata in kernels:
        launch = {field: getattr(metadata, field, None) for field in LAUNCH_METADATA}
        digest.update(repr(launch).encode() + binary.code_of(image))
    return digest.hexdigest()

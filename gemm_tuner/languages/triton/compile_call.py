"""Compiles the kernels of one call for any target, with a substitute for Triton's driver; needs no GPU and no torch.

It uses Triton's own JIT path, so that the disk cache key equals that of the later launch (a hand-built ``ASTSource``
hashes differently).
"""

from __future__ import annotations

import errno
import hashlib
import importlib
import sys
import time
import types
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from gemm_tuner.core.language import CompileTask
from gemm_tuner.core.records import CompileResult, Status, Target
from gemm_tuner.core.workload import Launch, workload_of
from gemm_tuner.languages.elf import code_of
from gemm_tuner.languages.scripts import config_of_kernel, loaded_script
from gemm_tuner.languages.triton.artifact import entry_name
from gemm_tuner.languages.triton.blank import Blank
from gemm_tuner.languages.triton.cached_compile import warm_up

MESSAGE_CHARACTERS = 2000
# Errors of writing that do not depend on the kernel: full or read-only disk, quota, file size limit.
CANNOT_WRITE = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG)
# The parts of Triton's metadata that affect a launch in addition to the code: threads, shared memory, clusters, shapes
# of descriptors, scratch memory of the kernel.
LAUNCH_METADATA = (
    *("num_warps", "num_ctas", "cluster_dims", "shared", "tmem_size", "tensordesc_meta", "global_scratch_size"),
    *("launch_cooperative_grid", "launch_pdl"),
)


class StandInDriver:
    """The subset of Triton's driver interface that the JIT uses when it does not launch."""

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


def keep_torch_out() -> None:
    """Installs an empty module ``torch``. Triton's AMD backend imports torch (3 s and 300 MB per worker) only to test
    whether an argument is a ``torch.Tensor``, and no argument here is one."""
    stand_in = types.ModuleType("torch")
    stand_in.Tensor = type("Tensor", (), {})  # type: ignore[attr-defined]
    sys.modules.setdefault("torch", stand_in)


def let_torch_in() -> None:
    """Undoes ``keep_torch_out``, for user code that imports torch."""
    if not hasattr(sys.modules.get("torch"), "__version__"):
        sys.modules.pop("torch", None)
        importlib.import_module("torch")


def compile_call(task: CompileTask, target: Target, scripts_dir: str) -> CompileResult:
    """Compiles all kernels of one call. The result has the registers of the main kernel, and the largest spills and
    shared memory of any kernel.

    Raises OSError when the cache of compiled kernels cannot be written.
    """
    started = time.perf_counter()
    try:
        launches = launches_of(task, scripts_dir)
        found = [warm_up(launch) for launch in launches]
        compiled = [kernel for kernel, _ in found]
        symbols = [launch[0] for launch in launches]
        main = compiled[symbols.index(task.name) if task.name in symbols else 0]
        kind = "cubin" if target.backend == "cuda" else "hsaco"
        registers, spills = resources(main.asm[kind], target)
        spills = max([spills, *(resources(kernel.asm[kind], target)[1] for kernel in compiled[1:])])
        launched = launches_text(launches) if workload_of(task.problem.kind).hashes_launches else ""
        digest = code_hash([(kernel.asm[kind], kernel.metadata) for kernel in compiled], registers, launched)
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
        shared_bytes=max(int(kernel.metadata.shared) for kernel in compiled),
        binary_hash=digest,
        cached=all(was_there for _, was_there in found),
        entries=tuple(entry_name(kernel.hash) for kernel in compiled),
    )


@dataclass(frozen=True, slots=True)
class CompiledKernel:
    """A kernel that another language's call has beside its own; fields as in ``CompileResult``."""

    spills: int
    shared_bytes: int
    code_hash: str
    entry: str
    was_there: bool


def compile_launch(launch: Launch, target: Target) -> CompiledKernel:
    """Compiles one kernel. Raises what Triton raises."""
    kernel, was_there = warm_up(launch)
    registers, spills = resources(kernel.asm["cubin"], target)
    digest = code_hash([(kernel.asm["cubin"], kernel.metadata)], registers)
    return CompiledKernel(spills, int(kernel.metadata.shared), digest, entry_name(kernel.hash), was_there)


def launches_of(task: CompileTask, scripts_dir: str) -> list[Launch]:
    """The kernels that the task compiles."""
    if task.script is None:
        from gemm_tuner.languages.triton.support_kernels import support_launches

        return support_launches(Blank("int32", 1), Blank("int32", 1), 1)
    script = loaded_script(task.script, scripts_dir)
    config = config_of_kernel(task.script, scripts_dir)[task.name]
    return workload_of(task.problem.kind).compile_calls(script, config, task.problem, Blank)


def resources(image: bytes, target: Target) -> tuple[int, int]:
    """(registers of a thread, spills) of a cubin or a code object."""
    from gemm_tuner.languages.triton import binary

    if target.backend == "cuda":
        found = binary.nvidia_resources(image, binary.cuobjdump_path())
    else:
        found = binary.amd_resources(image)
    return found.registers, found.spills


def code_hash(kernels: Iterable[tuple[bytes, Any]], registers: int, launched: str = "") -> str:
    """sha256 over machine code and launch metadata of the kernels of one call, without their names.

    kernels: (machine code, Triton's metadata). registers: of the main kernel.
    """
    digest = hashlib.sha256(f"{registers} registers{launched}".encode())
    for image, metadata in kernels:
        launch = {field: getattr(metadata, field, None) for field in LAUNCH_METADATA}
        digest.update(repr(launch).encode() + code_of(image))
    return digest.hexdigest()


def launches_text(launches: Iterable[Launch]) -> str:
    """The grids and the arguments at run time of the kernels of one call: what is not part of their code."""
    storages: dict[Any, int] = {}

    def text(value: Any) -> Any:
        if hasattr(value, "data_ptr"):
            storage = storages.setdefault(getattr(value, "storage", id(value)), len(storages))
            return storage, str(value.dtype), value.data_ptr(), value.ptr_range()
        if hasattr(value, "block_shape"):
            return text(value.base), *map(repr, (value.shape, value.strides, value.block_shape))
        return tuple(map(text, value)) if isinstance(value, tuple) else repr(value)

    calls = []
    for _, kernel, grid, args, kwargs in launches:
        given = {**dict(zip(kernel.arg_names, args, strict=False)), **kwargs}
        at_run_time = [one.name for one in kernel.params if not one.is_constexpr and one.name in given]
        calls.append((grid, [(name, text(given[name])) for name in at_run_time]))
    return repr(calls)

"""The implementation of ``core.language.Language`` for Triton. Triton and torch are imported on demand."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from gemm_tuner.core.language import Artifact, Compiles, CompileTask
from gemm_tuner.core.markers import FLUSH_SYMBOL
from gemm_tuner.core.records import CompileResult, Target
from gemm_tuner.core.workload import launch_all
from gemm_tuner.languages.triton import artifact, entry_group
from gemm_tuner.languages.triton.interpreter_fault import check_versions
from gemm_tuner.languages.triton.kernel_env import FOREIGN_VARIABLES, code_variables, counting_variables, kernel_env
from gemm_tuner.languages.triton.symbol_naming import naming
from gemm_tuner.languages.triton.triton_key import known_triton_key

LAUNCH_OPTIONS = {
    "cuda": ("num_warps", "num_stages"),
    "hip": ("num_warps", "num_stages", "waves_per_eu", "matrix_instr_nonkdim", "kpack"),
}


class Triton:
    name = "triton"
    backends = ("cuda", "hip")
    removed_variables = FOREIGN_VARIABLES
    test_command = "python -c 'import triton'"

    def launch_options(self, target: Target) -> tuple[str, ...]:
        return LAUNCH_OPTIONS[target.backend]

    def identity(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Environment variables only; Triton's version is recorded with the versions of the machine."""
        return {f"environment variable {name}": value for name, value in counting_variables(environ).items()}

    def code_variables(self, environ: Mapping[str, str]) -> dict[str, str]:
        return code_variables(environ)

    def environment(self, cache: Path) -> dict[str, str]:
        return kernel_env(cache)

    def interpreter_environment(self) -> dict[str, str]:
        return {"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""}

    def require_interpreter(self) -> None:
        check_versions()

    def cache_name(self, *templates_dirs: Path) -> str:
        return naming(*templates_dirs)

    def adopt_cache(self, cache: Path) -> None:
        entry_group.relocate(cache)

    def pack(self, cache: Path, entry: str) -> Artifact:
        return artifact.pack(cache, entry)

    def unpack(self, packed: Artifact, cache: Path) -> None:
        artifact.unpack(packed, cache)

    def worker_imports(self, target: Target | None) -> tuple[str, dict[str, str]]:
        return "gemm_tuner.languages.triton.worker_imports", {}

    def worker_argument(self, folder: Path) -> str:
        return known_triton_key(folder)

    def start_worker(self, target: Target, argument: str) -> None:
        """As the protocol says. argument: Triton's hash of its own code, which takes 0.35 s to compute."""
        from gemm_tuner.languages.triton.compile_call import StandInDriver, keep_torch_out

        keep_torch_out()
        import triton

        triton.runtime.driver.set_active(StandInDriver(target))
        if argument:
            triton.runtime.cache.triton_key = lambda: argument

    def find(self, task: CompileTask, target: Target, scripts_dir: str) -> CompileResult | None:
        """None: ``compile`` looks into the cache just as soon."""
        return None

    def compile(self, task: CompileTask, target: Target, scripts_dir: str) -> CompileResult:
        from gemm_tuner.languages.triton.compile_call import compile_call

        return compile_call(task, target, scripts_dir)

    def start_launcher(self, device: str) -> Compiles:
        if device != "cpu":
            provide_descriptor_memory()
            take_known_key()
        return ListenedCompiles()

    def support_calls(self, flush_bytes: int, device: str) -> dict[str, Callable[..., None]]:
        import torch

        from gemm_tuner.languages.triton.support_kernels import FLUSH_BLOCK_SIZE, support_launches

        blocks = max(1, flush_bytes // (4 * FLUSH_BLOCK_SIZE))
        buffer = torch.zeros(blocks * FLUSH_BLOCK_SIZE, dtype=torch.int32, device=device)
        sink = torch.zeros(1, dtype=torch.int32, device=device)
        launches = {launch[0]: launch for launch in support_launches(buffer, sink, blocks)}
        symbol, kernel, grid, *arguments = launches[FLUSH_SYMBOL]

        def flush(sweeps: int = 1) -> None:
            # The kernel reads the block of the first index, once for each of the second.
            launch_all([(symbol, kernel, (*grid, sweeps), *arguments)])

        return {**{key: partial(launch_all, [launch]) for key, launch in launches.items()}, FLUSH_SYMBOL: flush}


class ListenedCompiles:
    """Counts compilations and disk cache hits, as Triton's compilation listener reports them."""

    def __init__(self) -> None:
        import triton

        self.compiled, self.from_cache = 0, 0
        triton.knobs.compilation.listener = self._count

    def _count(self, *, cache_hit: bool, **_: Any) -> None:
        if cache_hit:
            self.from_cache += 1
        else:
            self.compiled += 1


def take_known_key() -> None:
    """Gives Triton the hash of its own code from beside the cache; to compute it reads 0.3 GB."""
    import triton

    cache = os.environ.get("TRITON_CACHE_DIR")
    if cache:
        key = known_triton_key(Path(cache).parent)
        triton.runtime.cache.triton_key = lambda: key


def provide_descriptor_memory() -> None:
    """Sets Triton's allocator, which kernels that create TMA descriptors on the device (WARP_SPECIALIZE) need."""
    import torch
    import triton

    def allocate(size: int, alignment: int, stream: int | None) -> Any:
        return torch.empty(size, dtype=torch.int8, device="cuda")

    triton.set_allocator(allocate)


LANGUAGE = Triton()

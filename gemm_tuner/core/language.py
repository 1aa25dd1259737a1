"""The protocol of a kernel language (Triton, C, ...), and the lookup of an implementation by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Protocol

from gemm_tuner.core.plugins import find
from gemm_tuner.core.records import CompileResult, Problem, Target
from gemm_tuner.core.script import Script

# Other packages register their languages in this entry point group: ``zig = package.module``.
ENTRY_POINTS = "gemm_tuner.languages"


@dataclass(frozen=True, slots=True)
class CompileTask:
    """A kernel of a script to compile for one specialization. ``problem`` is any problem of that specialization.

    script: identified by content, so that any worker that has it can do the task; None for the kernels of the
            measurement itself (``core.markers``).
    name:   the Config.kernel_symbol, which configurations of the script may share; empty for the measurement's kernels.
    """

    script: Script | None
    name: str
    specialization: str
    problem: Problem


@dataclass(frozen=True, slots=True)
class Artifact:
    """One compiled kernel, independent of the machine that compiled it.

    entry: its name in every cache of its language.
    files: (name, content). Names hold no path of the compiling machine; debug information in the machine code may still
           name the folder of the script.
    """

    entry: str
    files: tuple[tuple[str, bytes], ...]


class Compiles(Protocol):
    """How many kernels a launcher compiled, and how many it took from the cache."""

    compiled: int
    from_cache: int


class Language(Protocol):
    """How kernels of one language are compiled, cached and launched.

    A script is a Python module in every language: its function ``calls`` returns kernels that
    ``kernel[grid](*positional, **options)`` launches.

    name:              name of the implementing package; its scripts begin with templates/head_<name>.j2.
    backends:          backends that it compiles for: "cuda", "hip", "cpu".
    removed_variables: environment variables that are removed for a run because they would change its kernels.
    test_command:      a command that a user can run to see whether the compiler works.
    """

    name: str
    backends: tuple[str, ...]
    removed_variables: tuple[str, ...]
    test_command: str

    def launch_options(self, target: Target) -> tuple[str, ...]:
        """Names of the configuration fields that a launch passes as keyword arguments."""

    def identity(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Everything outside the scripts that changes code or times, by readable name: environment variables and
        compiler versions."""

    def code_variables(self, environ: Mapping[str, str]) -> dict[str, str]:
        """The variables of an environment that change compiled code: all machines of a cluster have those of the run's
        own."""

    def environment(self, cache: Path) -> dict[str, str]:
        """Environment variables of compile workers and launchers. cache: folder of the compiled kernels."""

    def interpreter_environment(self) -> dict[str, str] | None:
        """Environment variables that make a launcher run kernels on the CPU, for checks; None if the language has no
        interpreter."""

    def require_interpreter(self) -> None:
        """Raises EnvironmentFault where an interpreter cannot run kernels with the packages that are installed."""
        return None

    # The cache: a folder with one subfolder per compiled kernel.

    def cache_name(self, *templates_dirs: Path) -> str:
        """Name of the cache folder that kernels generated from these templates can share."""

    def adopt_cache(self, cache: Path) -> None:
        """Makes the entries of a cache valid at its present path, after it may have been moved or copied. No other
        process may use the cache during the call."""

    def pack(self, cache: Path, entry: str) -> Artifact:
        """Reads a cache entry. Raises ValueError when it does not hold a complete kernel, and OSError."""

    def unpack(self, artifact: Artifact, cache: Path) -> None:
        """Adds a kernel to this cache. Raises ValueError for a kernel of another language, and OSError."""

    # Compilation, without a GPU.

    def worker_imports(self, target: Target | None) -> tuple[str, dict[str, str]]:
        """(a module that compile workers need and that is slow to import, "" for none; environment variables under
        which it is imported). The server that workers are forked from imports it once; without one they are spawned.
        With variables the language has a server of its own.

        target: None while it is unknown. A module that depends on it is "" then."""

    def worker_argument(self, folder: Path) -> str:
        """A value that every worker needs and that is slow to compute, such as a hash of the compiler.

        folder: where the value may be cached between runs.
        """

    def start_worker(self, target: Target, argument: str) -> None:
        """Prepares the calling process, a compile worker, for ``compile``. argument: what ``worker_argument``
        returned."""

    def find(self, task: CompileTask, target: Target, scripts_dir: str) -> CompileResult | None:
        """What ``compile`` would return for a task whose kernels are in the cache, in a process that was not prepared
        for compiling. None if one is not there, or if that cannot be told without the compiler."""

    def compile(self, task: CompileTask, target: Target, scripts_dir: str) -> CompileResult:
        """Compiles all kernels of one call. The result has the registers of the main kernel, and the largest spills and
        shared memory of any kernel.

        Raises OSError when the cache cannot be written.
        """

    # In the launcher process.

    def start_launcher(self, device: str) -> Compiles:
        """Prepares the calling process, a launcher on the torch device ``device``, without using the GPU, which another
        launcher may be timing on. The returned counts grow with each launch of a new kernel."""

    def support_calls(self, flush_bytes: int, device: str) -> dict[str, Callable[..., None]]:
        """Launch functions of the measurement's own kernels, by symbol (``core.markers``). That of FLUSH_SYMBOL may be
        given how many times its memory is read in one launch (default: 1).

        flush_bytes: how much memory the flush kernel reads to evict everything else from the caches.
        """


@lru_cache(maxsize=8)
def language_of(name: str) -> Language:
    """The language ``name``: ``LANGUAGE`` of the module gemm_tuner.languages.<name>.language, or of an entry point.

    Raises ValueError for an unknown name.
    """
    module = f"gemm_tuner.languages.{name}.language"
    found: Language = find(module, "LANGUAGE", ENTRY_POINTS, name, "kernel language")
    return found

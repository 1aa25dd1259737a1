"""The protocol of a kernel language, and the look-up of its implementation by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Protocol

from gemm_tuner.core.plugins import find
from gemm_tuner.core.records import CompileResult, Problem, Target
from gemm_tuner.core.script import Script

# Packages outside this one name their languages in this group of entry points: ``zig = package.module``.
ENTRY_POINTS = "gemm_tuner.languages"


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


@dataclass(frozen=True, slots=True)
class Artifact:
    """One compiled kernel as content. entry: its name in every cache of its language. files: names and contents.

    No path of the machine that compiled it is in the names; debug information of machine code may name the script's
    folder there.
    """

    entry: str
    files: tuple[tuple[str, bytes], ...]


class Compiles(Protocol):
    """What a launcher compiled, and what it took from the cache."""

    compiled: int
    from_cache: int


class Language(Protocol):
    """How kernels of one language are compiled, kept and launched.

    A script is a Python module whatever the language: its ``calls`` gives kernels that ``kernel[grid](*positional,
    **options)`` launches.

    name:              of the package that implements it; templates/head_<name>.j2 begins its scripts.
    backends:          of the targets that it compiles for: "cuda", "hip", "cpu".
    removed_variables: of a person's environment: they would change or replace the kernels of a run.
    test_command:      a command that shows whether the compiler works on a machine.
    """

    name: str
    backends: tuple[str, ...]
    removed_variables: tuple[str, ...]
    test_command: str

    def launch_options(self, target: Target) -> tuple[str, ...]:
        """The fields of a configuration that a launch takes as keyword arguments."""

    def identity(self, environ: Mapping[str, str]) -> dict[str, str]:
        """What changes code or times and is not in the scripts, by names for people: variables of an environment,
        versions of compilers."""

    def environment(self, cache: Path) -> dict[str, str]:
        """Variables for compile workers and launchers alike. cache: where compiled kernels are kept."""

    def interpreter_environment(self) -> dict[str, str] | None:
        """Variables by which a launcher runs kernels on the CPU to check them; None when nothing can."""

    # The folder of compiled kernels: one folder an entry.

    def cache_name(self, *templates_dirs: Path) -> str:
        """The name of the cache that kernels of these templates may share."""

    def adopt_cache(self, cache: Path) -> None:
        """Makes the entries of a cache that may have been moved valid where it lies now. Nothing else uses it
        meanwhile."""

    def pack(self, cache: Path, entry: str) -> Artifact:
        """An entry of a cache as content. Raises ValueError for one that holds no whole kernel, and OSError."""

    def unpack(self, artifact: Artifact, cache: Path) -> None:
        """Makes a kernel an entry of this cache. Raises ValueError for one of another language, and OSError."""

    # Compiling, without a GPU.

    def worker_argument(self, folder: Path) -> str:
        """What all workers need and would each find for themselves, such as a hash of the compiler.

        folder: where it may be kept between runs.
        """

    def start_worker(self, target: Target, argument: str) -> None:
        """Prepares this process, a worker, for ``compile``."""

    def compile(self, task: CompileTask, target: Target, scripts_dir: str) -> CompileResult:
        """Compiles all kernels of one call; the registers reported are the main kernel's, spills and shared memory the
        most of any.

        Raises OSError when the cache cannot be written.
        """

    # In the launcher.

    def start_launcher(self, device: str) -> Compiles:
        """Prepares this process, a launcher on torch's ``device``; the counts grow with what is launched."""

    def support_calls(self, flush_bytes: int, device: str) -> dict[str, Callable[[], None]]:
        """The measurement's own kernels by their symbols (``core.markers``), ready to launch.

        flush_bytes: of memory that the flush reads, so that caches hold nothing else.
        """


@lru_cache(maxsize=8)
def language_of(name: str) -> Language:
    """A language: ``LANGUAGE`` of the module gemm_tuner.languages.<name>.language, or of an entry point.

    Raises ValueError for a name that is neither.
    """
    module = f"gemm_tuner.languages.{name}.language"
    found: Language = find(module, "LANGUAGE", ENTRY_POINTS, name, "kernel language")
    return found

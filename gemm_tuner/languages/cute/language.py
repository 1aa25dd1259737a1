"""The implementation of ``core.language.Language`` for CuTe DSL. Marker and flush kernels are Triton's, in the same
cache."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gemm_tuner.core.language import Artifact, Compiles, CompileTask, Language, language_of
from gemm_tuner.core.records import CompileResult, Status, Target
from gemm_tuner.core.workload import Launch, workload_of
from gemm_tuner.languages.cute import library
from gemm_tuner.languages.cute.library import CACHE_VARIABLE
from gemm_tuner.languages.cute.source import Source
from gemm_tuner.languages.kernel_cache import mark_used
from gemm_tuner.languages.scripts import config_of_kernel, loaded_script

if TYPE_CHECKING:
    from gemm_tuner.languages.triton.compile_call import CompiledKernel

# Variables that name the architecture and the DSL's file to the process that workers are forked from: a DSL that only
# the tuner's own process finds is imported by each worker.
ARCH_VARIABLE, PLACE_VARIABLE = "GEMM_TUNER_CUTE_ARCH", "GEMM_TUNER_CUTE_FILE"
PACKAGES = ("nvidia-cutlass-dsl", "quack-kernels", "apache-tvm-ffi")
MESSAGE_CHARACTERS = 2000
NOT_THERE = f"nvidia-cutlass-dsl is not installed: {library.HINT}"


def versions() -> dict[str, str]:
    """The versions of the packages that compile and launch these kernels; "not installed" for missing ones."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


class Cute:
    """The language CuTe DSL; also the ``Compiles`` of a launcher, which counts cache hits (launchers do not compile).

    If the compiler ends a worker process, its configuration fails. Workers import the DSL when they start, and start
    only when there is something to compile.
    """

    name = "cute"
    backends = ("cuda",)
    test_command = "python -c 'import cutlass.cute'"

    def __init__(self) -> None:
        self.compiled = self.from_cache = 0
        self._triton_is_ready = False

    @property
    def removed_variables(self) -> tuple[str, ...]:
        own = ("CUTE_DSL_ARCH", "CUTE_DSL_KEEP", "CUTE_DSL_DRYRUN", "CUTE_DSL_COMPILE_OPTIONS")
        return (*own, *_triton().removed_variables)

    def launch_options(self, target: Target) -> tuple[str, ...]:
        return ()

    def identity(self, environ: Mapping[str, str]) -> dict[str, str]:
        return {**versions(), **_triton().identity(environ)}

    def code_variables(self, environ: Mapping[str, str]) -> dict[str, str]:
        return _triton().code_variables(environ)

    def environment(self, cache: Path) -> dict[str, str]:
        return {**_triton().environment(cache), CACHE_VARIABLE: str(cache)}

    def interpreter_environment(self) -> dict[str, str] | None:
        return None

    def require_interpreter(self) -> None:
        """Nothing to do: there is none."""

    def cache_name(self, *templates_dirs: Path) -> str:
        made_by = hashlib.sha256(repr(versions()).encode()).hexdigest()[:12]
        return f"{self.name}-{made_by}-{_triton().cache_name(*templates_dirs)}"

    def adopt_cache(self, cache: Path) -> None:
        _triton().adopt_cache(cache)

    def pack(self, cache: Path, entry: str) -> Artifact:
        if not library.ENTRY.fullmatch(entry):
            return _triton().pack(cache, entry)
        return Artifact(entry, tuple((name, (cache / entry / name).read_bytes()) for name in library.FILES))

    def unpack(self, artifact: Artifact, cache: Path) -> None:
        if not library.ENTRY.fullmatch(artifact.entry):
            _triton().unpack(artifact, cache)
            return
        names = tuple(name for name, _ in artifact.files)
        if names != library.FILES:
            raise ValueError(f"no kernel of CuTe DSL: {names!r}"[:MESSAGE_CHARACTERS])
        library.put(cache, artifact.entry, artifact.files)

    def worker_imports(self, target: Target | None) -> tuple[str, dict[str, str]]:
        """The DSL has to know at import which architecture it is for."""
        from gemm_tuner.languages.cute import compiler

        if target is None or not (place := compiler.place()):
            return "", {}
        return "gemm_tuner.languages.cute.worker_imports", {ARCH_VARIABLE: target.arch, PLACE_VARIABLE: place}

    def worker_argument(self, folder: Path) -> str:
        return ""

    def start_worker(self, target: Target, argument: str) -> None:
        """Prepares a worker. Without the DSL it can still use the cache."""
        from gemm_tuner.languages.cute import compiler

        if compiler.is_there():
            compiler.prepare(target.arch)

    def find(self, task: CompileTask, target: Target, scripts_dir: str) -> CompileResult | None:
        """Without the DSL. What goes wrong here goes wrong again in ``compile``, which reports it."""
        started, cache = time.perf_counter(), Path(os.environ[CACHE_VARIABLE])
        try:
            launches = launches_of(task, scripts_dir)
            sources = sources_of(launches)
            if not all(kernel_is_there(cache, source.entry) for source in sources):
                return None
            return self._result(task, launches, sources, target, True, started)
        except Exception:
            return None

    def compile(self, task: CompileTask, target: Target, scripts_dir: str) -> CompileResult:
        if task.script is None:
            self._prepare_triton(target)
            return _triton().compile(task, target, scripts_dir)
        started, of = time.perf_counter(), (task.name, task.specialization)
        cache = Path(os.environ[CACHE_VARIABLE])
        try:
            launches = launches_of(task, scripts_dir)
            sources = sources_of(launches)
            was_there = [kernel_is_there(cache, source.entry) for source in sources]
            for source in (source for source, there in zip(sources, was_there, strict=True) if not there):
                compile_into(cache, source, scripts_dir)
            return self._result(task, launches, sources, target, all(was_there), started)
        except CannotCache as error:
            raise OSError(str(error)) from error
        except Exception as error:  # the builder and the DSL can raise anything
            text = f"{type(error).__name__}: {said(error)}"[:MESSAGE_CHARACTERS]
            return CompileResult(*of, Status.COMPILE_ERROR, time.perf_counter() - started, message=text)

    def _result(
        self,
        task: CompileTask,
        launches: list[Launch],
        sources: list[Source],
        target: Target,
        were_there: bool,
        started: float,
    ) -> CompileResult:
        """Of a call whose kernels in this language, ``sources``, are in the cache; those of Triton are compiled.

        were_there: they were before, too. started: by ``time.perf_counter``.
        """
        cache = Path(os.environ[CACHE_VARIABLE])
        needs = [needs_of(cache, source.entry) for source in sources]
        after = self._compile_triton([launch for launch in launches if not is_ours(launch[1])], target)
        return CompileResult(
            task.name,
            task.specialization,
            Status.OK,
            time.perf_counter() - started,
            registers=max(one.registers for one in needs),
            spills=max(one.spills for one in (*needs, *after)),
            shared_bytes=max(one.shared_bytes for one in (*needs, *after)),
            binary_hash=joined_hash([one.code_hash for one in (*needs, *after)]),
            cached=were_there and all(one.was_there for one in after),
            entries=(*(source.entry for source in sources), *(one.entry for one in after)),
        )

    def _compile_triton(self, launches: list[Launch], target: Target) -> list[CompiledKernel]:
        """Kernels of Triton that a call has beside ours."""
        if not launches:
            return []
        from gemm_tuner.languages.triton.compile_call import compile_launch

        self._prepare_triton(target)
        return [compile_launch(launch, target) for launch in launches]

    def _prepare_triton(self, target: Target) -> None:
        if not self._triton_is_ready:
            has_torch = "torch" in sys.modules
            _triton().start_worker(target, "")
            if not has_torch:  # Triton's empty torch module does not suffice for kernels that import torch
                sys.modules.pop("torch", None)
            self._triton_is_ready = True

    def start_launcher(self, device: str) -> Compiles:
        return self

    def support_calls(self, flush_bytes: int, device: str) -> dict[str, Callable[..., None]]:
        return _triton().support_calls(flush_bytes, device)

    def load(self, source: Source) -> Callable[..., Any]:
        """The function that launches a cached kernel. Raises FileNotFoundError if it is not in the cache."""
        path = Path(os.environ[CACHE_VARIABLE]) / source.entry / library.LIBRARY
        if not path.is_file():
            raise FileNotFoundError(f"{source.name} has not been compiled for {source.arch}")
        self.from_cache += 1
        return library.load(path, source.name)


def blank(dtype: str, elements: int) -> Any:
    """Stands for a tensor."""
    from gemm_tuner.languages.triton.blank import Blank

    return Blank(dtype, elements)


def launches_of(task: CompileTask, scripts_dir: str) -> list[Launch]:
    """The launches of a task's call, on blank arguments."""
    assert task.script is not None
    script = loaded_script(task.script, scripts_dir)
    config = config_of_kernel(task.script, scripts_dir)[task.name]
    return workload_of(task.problem.kind).compile_calls(script, config, task.problem, blank)


def sources_of(launches: list[Launch]) -> list[Source]:
    """The kernels of a call in this language."""
    return [Source.of(kernel) for _, kernel, *_ in launches if is_ours(kernel)]


def is_ours(kernel: Any) -> bool:
    """Whether a kernel of a script is one of this language."""
    return hasattr(kernel, "builder")


def joined_hash(hashes: list[str]) -> str:
    """One for all kernels of a call."""
    return hashes[0] if len(hashes) == 1 else hashlib.sha256(" ".join(hashes).encode()).hexdigest()


class CannotCache(Exception):
    """The cache cannot be written."""


def kernel_is_there(cache: Path, entry: str) -> bool:
    return (cache / entry / library.LIBRARY).is_file() and mark_used(cache / entry)


def compile_into(cache: Path, source: Source, folder: str) -> None:
    """Compiles a source into the cache. folder: for temporary files.

    Raises ModuleNotFoundError without the DSL, CannotCache, and what the compilation raises.
    """
    from gemm_tuner.languages.cute import compiler
    from gemm_tuner.languages.triton.binary import cuobjdump_path

    if not compiler.is_there():
        raise ModuleNotFoundError(NOT_THERE)
    image, needs = compiler.build(source, folder, cuobjdump_path())
    try:
        library.put(cache, source.entry, ((library.NEEDS, needs.dumps()), (library.LIBRARY, image)))
    except OSError as error:
        raise CannotCache(str(error)) from error


def needs_of(cache: Path, entry: str) -> Any:
    from gemm_tuner.languages.cute.compiler import Needs

    return Needs.loads((cache / entry / library.NEEDS).read_bytes())


def said(error: BaseException) -> str:
    """The linker's output if the error has one, else the text of the error."""
    printed = error.stderr if isinstance(error, subprocess.CalledProcessError) else b""
    return (printed or b"").decode(errors="replace").strip() or str(error)


def _triton() -> Language:
    return language_of("triton")


LANGUAGE = Cute()

"""C, as ``core.language.Language`` asks for it."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from gemm_tuner.core.language import Artifact, CompileTask
from gemm_tuner.core.markers import BEGIN_SYMBOL, END_SYMBOL, FLUSH_SYMBOL
from gemm_tuner.core.records import CompileResult, Status, Target
from gemm_tuner.core.workload import workload_of
from gemm_tuner.languages.c import library
from gemm_tuner.languages.c.library import CACHE_VARIABLE, Source
from gemm_tuner.languages.scripts import config_of_kernel, loaded_script

FLUSH = Source(
    FLUSH_SYMBOL,
    f"int {FLUSH_SYMBOL}(const char *bytes, long count) {{\n"
    "    int sum = 0;\n"
    "    for (long at = 0; at < count; at += 64) sum += bytes[at];\n"
    "    return sum;\n"
    "}\n",
)


class C:
    """Counts, as a launcher's ``Compiles``, what was compiled and what was found in this process."""

    name = "c"
    backends = ("cpu",)
    removed_variables: tuple[str, ...] = ()
    test_command = "cc --version"

    def __init__(self) -> None:
        self.compiled = self.from_cache = 0

    def launch_options(self, target: Target) -> tuple[str, ...]:
        return ()

    def identity(self, environ: Mapping[str, str]) -> dict[str, str]:
        return {"C compiler": library.compiler_version(library.compiler(environ))}

    def environment(self, cache: Path) -> dict[str, str]:
        return {CACHE_VARIABLE: str(cache), "LC_ALL": "C.UTF-8"}

    def interpreter_environment(self) -> dict[str, str] | None:
        return None

    def cache_name(self, *templates_dirs: Path) -> str:
        """One for all: an entry's name holds all that it depends on."""
        return "c"

    def adopt_cache(self, cache: Path) -> None:
        """An entry holds no path."""

    def pack(self, cache: Path, entry: str) -> Artifact:
        return Artifact(entry, ((library.FILE, (cache / entry / library.FILE).read_bytes()),))

    def unpack(self, artifact: Artifact, cache: Path) -> None:
        ((name, content),) = artifact.files
        if name != library.FILE or not library.ENTRY.fullmatch(artifact.entry):
            raise ValueError(f"no C library: {artifact.entry[:80]!r} with {name[:80]!r}")
        library.put(cache, artifact.entry, content)

    def worker_argument(self, folder: Path) -> str:
        return ""

    def start_worker(self, target: Target, argument: str) -> None:
        """A worker needs nothing but the compiler."""

    def compile(self, task: CompileTask, target: Target, scripts_dir: str) -> CompileResult:
        """Registers and shared memory are a GPU's: 0."""
        started, of = time.perf_counter(), (task.name, task.specialization)
        cache = Path(os.environ[CACHE_VARIABLE])
        try:
            found = [library.compiled(source, cache) for source in self._sources(task, scripts_dir)]
            digest = library.code_hash([cache / entry / library.FILE for entry, _ in found])
        except (subprocess.SubprocessError, ValueError, AttributeError, TypeError) as error:
            text = f"{type(error).__name__}: {library.said(error)}"
            return CompileResult(*of, Status.COMPILE_ERROR, time.perf_counter() - started, message=text)
        return CompileResult(
            *of,
            Status.OK,
            time.perf_counter() - started,
            binary_hash=digest,
            cached=all(was_there for _, was_there in found),
            entries=tuple(entry for entry, _ in found),
        )

    def _sources(self, task: CompileTask, scripts_dir: str) -> list[Source]:
        """The kernels of one call, or the measurement's own."""
        if task.script is None:
            return [FLUSH]
        script = loaded_script(task.script, scripts_dir)
        config = config_of_kernel(task.script, scripts_dir)[task.name]
        calls = workload_of(task.problem.kind).compile_calls(script, config, task.problem, lambda dtype, elements: None)
        return [Source.of(kernel) for _, kernel, *_ in calls]

    def start_launcher(self, device: str) -> C:
        return self

    def support_calls(self, flush_bytes: int, device: str) -> dict[str, Callable[[], None]]:
        """Marker kernels do nothing: the clock writes their names."""
        buffer, flush = bytearray(max(64, flush_bytes)), self.load(FLUSH)
        return {
            BEGIN_SYMBOL: lambda: None,
            END_SYMBOL: lambda: None,
            FLUSH_SYMBOL: lambda: flush(buffer, len(buffer)),
        }

    def load(self, source: Source) -> Callable[..., None]:
        """The function of a source, from the cache or compiled here. It takes ints, floats, buffers, and arrays that
        have ``ctypes.data`` or ``data_ptr()``."""
        function, was_there = library.load(source, Path(os.environ[CACHE_VARIABLE]))
        self.from_cache += was_there
        self.compiled += not was_there
        return function


LANGUAGE = C()

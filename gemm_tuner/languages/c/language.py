"""The implementation of ``core.language.Language`` for C."""

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
    """The language C; also the ``Compiles`` of a launcher, which counts compilations and cache hits of this process."""

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

    def code_variables(self, environ: Mapping[str, str]) -> dict[str, str]:
        return {}

    def environment(self, cache: Path) -> dict[str, str]:
        return {CACHE_VARIABLE: str(cache), "LC_ALL": "C.UTF-8"}

    def interpreter_environment(self) -> dict[str, str] | None:
        return None

    def require_interpreter(self) -> None:
        """Nothing to do: there is none."""

    def cache_name(self, *templates_dirs: Path) -> str:
        """The same name for all templates, because the name of an entry is a hash over everything it depends on."""
        return "c"

    def adopt_cache(self, cache: Path) -> None:
        """Nothing to do: entries contain no paths."""

    def pack(self, cache: Path, entry: str) -> Artifact:
        return Artifact(entry, ((library.FILE, (cache / entry / library.FILE).read_bytes()),))

    def unpack(self, artifact: Artifact, cache: Path) -> None:
        ((name, content),) = artifact.files
        if name != library.FILE or not library.ENTRY.fullmatch(artifact.entry):
            raise ValueError(f"no C library: {artifact.entry[:80]!r} with {name[:80]!r}")
        library.put(cache, artifact.entry, content)

    def worker_imports(self, target: Target | None) -> tuple[str, dict[str, str]]:
        return "", {}

    def worker_argument(self, folder: Path) -> str:
        return ""

    def start_worker(self, target: Target, argument: str) -> None:
        """Nothing to do: a worker only calls the compiler."""

    def find(self, task: CompileTask, target: Target, scripts_dir: str) -> CompileResult | None:
        """None: ``compile`` looks into the cache just as soon."""
        return None

    def compile(self, task: CompileTask, target: Target, scripts_dir: str) -> CompileResult:
        """As the protocol says; registers and shared memory do not exist on a CPU and are 0."""
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
        """The kernels of one call, or the measurement's kernels for a task without a script."""
        if task.script is None:
            return [FLUSH]
        script = loaded_script(task.script, scripts_dir)
        config = config_of_kernel(task.script, scripts_dir)[task.name]
        calls = workload_of(task.problem.kind).compile_calls(script, config, task.problem, lambda dtype, elements: None)
        return [Source.of(kernel) for _, kernel, *_ in calls]

    def start_launcher(self, device: str) -> C:
        return self

    def support_calls(self, flush_bytes: int, device: str) -> dict[str, Callable[..., None]]:
        """Marker kernels that do nothing: the profiler ``clock`` records their names."""
        buffer, read_all = bytearray(max(64, flush_bytes)), self.load(FLUSH)

        def flush(sweeps: int = 1) -> None:
            for _ in range(sweeps):
                read_all(buffer, len(buffer))

        return {BEGIN_SYMBOL: lambda: None, END_SYMBOL: lambda: None, FLUSH_SYMBOL: flush}

    def load(self, source: Source) -> Callable[..., None]:
        """The function of a source, loaded from the cache or compiled now. Its arguments may be ints, floats, buffers,
        and arrays with ``ctypes.data`` or ``data_ptr()``."""
        function, was_there = library.load(source, Path(os.environ[CACHE_VARIABLE]))
        self.from_cache += was_there
        self.compiled += not was_there
        return function


LANGUAGE = C()

"""The kernels in CuTe DSL of a module, as compiled libraries: from the cache of an earlier run, or compiled now."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from gemm_tuner.compile.compile_pool import CompilePool
from gemm_tuner.compile.compile_tasks import task_for, tasks_for, write_scripts
from gemm_tuner.compile.task_queue import TaskKey, key_of
from gemm_tuner.core.records import Status, Target
from gemm_tuner.gemm.config import KernelConfig
from gemm_tuner.gemm.kernels import call_size
from gemm_tuner.gemm.problem import GemmProblem
from gemm_tuner.languages import kernel_cache
from gemm_tuner.languages.cute import compiler, library
from gemm_tuner.languages.cute.extra import BRINGS, why_absent
from gemm_tuner.languages.cute.source import Source
from gemm_tuner.languages.scripts import load_script
from gemm_tuner.languages.together import named
from gemm_tuner.system.cores import usable_cores
from gemm_tuner.system.progress import step

LANGUAGES = ("triton", "cute")
COMPILE_LIMIT_S = 300.0
HASH_DIGITS = 12
# Of a compiled kernel that an export wrote.
FILE_NAME = re.compile(rf"gemm_cute_\w+_[0-9a-f]{{{HASH_DIGITS}}}\.so")

Wanted = Sequence[tuple[GemmProblem, KernelConfig]]


@dataclass(frozen=True, slots=True)
class Object:
    """A compiled kernel. kernel: the name of its function. image: the shared library that holds it."""

    kernel: str
    file: str
    image: bytes


def kernels_folder(templates: Path, made: Path) -> Path:
    """Where compiled kernels are looked for and put: in the user's cache, or below ``made`` if that cannot be
    written."""
    return kernel_cache.folder(named(LANGUAGES).cache_name(templates), made)


def objects_of(wanted: Wanted, templates: Path, target: Target) -> list[Object | str]:
    """For each size and configuration of gemm_cute its compiled kernel, or the reason why there is none.

    Kernels that no earlier run left in the user's cache are compiled, if the DSL is installed.
    Raises UserError for a template that does not render.
    """
    if not wanted:
        return []
    with tempfile.TemporaryDirectory(prefix="gemm_tuner_module_") as made:
        folder = Path(made)
        scripts = write_scripts(templates, folder, wanted, target)
        cache = kernels_folder(templates, folder)
        tasks = [task_for(scripts, problem, config, target) for problem, config in wanted]
        sources = []
        for (problem, config), task in zip(wanted, tasks, strict=True):
            assert task.script is not None
            script = load_script(str(folder / task.script.file))
            sources.append(Source.of(script.kernel_of(script.CONFIGS[config.name], call_size(problem))))
        paths = [cache / source.entry / library.LIBRARY for source in sources]
        faults: dict[TaskKey, str] = {}
        absent = why_absent() or ("" if compiler.is_there() else BRINGS)
        missing = tasks_for(
            [pair for pair, path in zip(wanted, paths, strict=True) if not path.is_file()], scripts, target
        )
        if missing and not absent:
            cache.mkdir(parents=True, exist_ok=True)
            where = cache, folder / "compile.log", folder
            workers = min(len(missing), usable_cores())
            pool = CompilePool(
                named(LANGUAGES), target, workers, *where, limit_s=COMPILE_LIMIT_S, kind=wanted[0][0].kind
            )
            with pool, step("compile", len(missing), Console(stderr=True)) as bar:
                for task, result in pool.run(missing):
                    bar.advance()
                    if result.status is not Status.OK:
                        faults[key_of(task)] = result.message or result.status.value
        found: list[Object | str] = []
        for source, path, task in zip(sources, paths, tasks, strict=True):
            if path.is_file():
                file = f"{source.name}_{source.entry[:HASH_DIGITS]}.so"
                found.append(Object(source.name, file, path.read_bytes()))
            else:
                found.append(absent or faults.get(key_of(task), "it was not compiled"))
        return found

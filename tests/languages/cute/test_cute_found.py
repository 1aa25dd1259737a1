"""Kernels that are in the cache are found without CuTe DSL, and without the workers that import it."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest
from pool_tasks import BROKEN, PROBLEM
from samples import TEMPLATES, config, device, problem

from gemm_tuner.compile.compile_pool import CompilePool
from gemm_tuner.compile.compile_tasks import tasks_for, write_scripts
from gemm_tuner.core.language import CompileTask, language_of
from gemm_tuner.core.records import CompileResult, Status
from gemm_tuner.core.script import Script, text_sha
from gemm_tuner.languages.cute import library
from gemm_tuner.languages.cute.compiler import Needs
from gemm_tuner.languages.cute.source import Source
from gemm_tuner.languages.scripts import load_script
from gemm_tuner.languages.together import Together

TARGET = device("sm_90").target
SIZE = problem(64, 64, 64)
NEEDS = Needs("a kernel", 90, 4, 1024, "hash")
ONE, SLICED, LARGE = (
    config(family="gemm_cute", num_warps=0, num_stages=0, **changes)
    for changes in ({}, {"SPLIT_K": 2}, {"BLOCK_SIZE_M": 128})
)


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[CompilePool]:
    (tmp_path / "cache").mkdir()
    language = Together(language_of("triton"), (language_of("cute"),))
    paths = tmp_path / "cache", tmp_path / "log.txt", tmp_path
    with CompilePool(language, TARGET, 1, *paths, limit_s=300, kind="gemm") as pool:
        yield pool


def answers(pool: CompilePool, tasks: list[CompileTask]) -> dict[str, CompileResult]:
    """By name; every task is answered once."""
    found = [result for _, result in pool.run(tasks)]
    assert sorted(one.name for one in found) == sorted(task.name for task in tasks)
    return {one.name: one for one in found}


def test_what_is_in_the_cache_starts_no_worker_that_compiles_it(pool: CompilePool, tmp_path: Path) -> None:
    """Also where a call has a kernel of Triton beside, which adds up the slices of K."""
    wanted = [(SIZE, ONE), (SIZE, SLICED)]
    scripts = write_scripts(TEMPLATES, tmp_path, wanted, TARGET)
    (script,) = (load_script(str(tmp_path / one.file)) for one in scripts.values())
    for one in (ONE, SLICED):
        source = Source.of(script.kernel_of(script.CONFIGS[one.name], (SIZE.m, SIZE.n, SIZE.k, SIZE.batch)))
        library.put(pool.cache, source.entry, ((library.NEEDS, NEEDS.dumps()), (library.LIBRARY, b"")))
    found = answers(pool, tasks_for(wanted, scripts, TARGET, longest_first=False))
    whole, sliced = found[ONE.kernel_symbol], found[SLICED.kernel_symbol]
    assert (whole.status, whole.cached, whole.registers) == (Status.OK, True, 90)
    assert (whole.spills, whole.shared_bytes) == (4, 1024)
    assert (sliced.status, sliced.spills, len(sliced.entries)) == (Status.OK, 4, 2), sliced.message
    assert [worker.finds for worker in pool._workers] == [True]


def test_what_is_not_there_is_compiled(pool: CompilePool, tmp_path: Path) -> None:
    wanted = [(SIZE, LARGE)]
    scripts = write_scripts(TEMPLATES, tmp_path, wanted, TARGET)
    (result,) = answers(pool, tasks_for(wanted, scripts, TARGET, longest_first=False)).values()
    if importlib.util.find_spec("quack") is None:
        assert result.status is Status.COMPILE_ERROR and "not installed" in result.message
    else:
        assert result.status is Status.OK and not result.cached, result.message


def test_a_search_in_the_cache_that_dies_costs_nothing(pool: CompilePool, tmp_path: Path) -> None:
    first = str(tmp_path / "first")
    once = f"os.path.exists({first!r}) or (open({first!r}, 'w'), os._exit(9))"
    text = BROKEN.format(kernel="pass", calls=once, pid_file=str(tmp_path / "pid"))
    script = Script("broken", text_sha(text), text_sha(text), "cute")
    (tmp_path / script.file).write_text(text, encoding="utf-8")
    (result,) = answers(pool, [CompileTask(script, "broken", "s", PROBLEM)]).values()
    assert Path(first).exists() and "died" not in result.message

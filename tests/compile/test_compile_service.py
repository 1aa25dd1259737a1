"""Compiling beside other work, with real workers: what is wanted comes first, nothing is compiled twice."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from samples import TEMPLATES

from gemm_tuner.compile.compile_pool import CompilePool
from gemm_tuner.compile.compile_service import CompileService
from gemm_tuner.compile.task_queue import key_of
from gemm_tuner.core.architecture import Architecture
from gemm_tuner.core.errors import EnvironmentFault
from gemm_tuner.core.language import CompileTask
from gemm_tuner.core.records import CompileResult, Status, Target
from gemm_tuner.gemm.config import KernelConfig
from gemm_tuner.gemm.problem import GemmProblem
from gemm_tuner.gemm.specialization import specialization
from gemm_tuner.languages.triton.language import LANGUAGE
from gemm_tuner.source import codegen

SM_90 = Target("cuda", "sm_90", 32, Architecture("wgmma", tma=True))
PROBLEM = GemmProblem(64, 64, 64)
SMALL = KernelConfig("gemm_tile", 16, 16, 16, 1, 1, 1, 2)
FOUR = tuple(replace(SMALL, BLOCK_SIZE_N=n, num_stages=s) for n in (16, 32) for s in (1, 2))
Heard = list[tuple[str, str]]


def tasks_in(folder: Path) -> list[CompileTask]:
    script = codegen.write_script(TEMPLATES, folder, "gemm_tile", PROBLEM, FOUR, SM_90)
    return [CompileTask(script, c.kernel_symbol, specialization(PROBLEM, c, SM_90), PROBLEM) for c in FOUR]


def pool_in(folder: Path) -> CompilePool:
    return CompilePool(LANGUAGE, SM_90, 1, folder / "cache", folder / "log.txt", folder, 60.0)


def ignore(_: object) -> None:
    """For who does not want to know."""


@pytest.fixture
def heard() -> Heard:
    return []


@pytest.fixture
def begin(tmp_path: Path, heard: Heard) -> Callable[..., CompileService]:
    def begin(known: dict[tuple[str, str, str], CompileResult] | None = None) -> CompileService:
        return CompileService(
            pool_in(tmp_path), lambda task, result: heard.append((task.name, result.status.value)), known
        )

    return begin


def test_what_is_wanted_is_compiled_and_told_before_it_is_seen(
    begin: Callable[..., CompileService], heard: Heard, tmp_path: Path
) -> None:
    tasks, advanced = tasks_in(tmp_path), list[int]()
    with begin() as compiler:
        assert compiler.compile(tasks[:2], advanced.append)
        assert {key_of(task) for task in tasks[:2]} == compiler.results.keys()
        assert heard == [(task.name, "ok") for task in tasks[:2]]
    assert sum(advanced) == 2
    assert (compiler.compiled, compiler.cached) == (2, 0) and compiler.busy_s > 0


def test_what_is_known_is_not_compiled_again(
    begin: Callable[..., CompileService], heard: Heard, tmp_path: Path
) -> None:
    first, second, *_ = tasks_in(tmp_path)
    known = CompileResult(first.name, first.specialization, Status.SPILLED)
    with begin({key_of(first): known}) as compiler:
        assert compiler.compile([first, second], ignore)
        assert compiler.compile([first, second, first], ignore)
    assert heard == [(second.name, "ok")]
    assert compiler.results[key_of(first)] == known


def test_an_offer_is_compiled_meanwhile_and_once(
    begin: Callable[..., CompileService], heard: Heard, tmp_path: Path
) -> None:
    first, second, third, _ = tasks_in(tmp_path)
    with begin() as compiler:
        compiler.prefetch([first, second])
        assert compiler.compile([third], ignore)
        # The offer was forgotten for what is wanted, but for what had been begun.
        compiler.prefetch([first, second, third])
        assert compiler.compile([second, first], ignore)
    assert sorted(name for name, _ in heard) == sorted(task.name for task in (first, second, third))


def test_what_a_worker_has_begun_is_waited_for_and_not_begun_again(tmp_path: Path) -> None:
    first, second, *_ = tasks_in(tmp_path)
    begun, asked, heard = threading.Event(), threading.Event(), list[str]()

    def told(task: CompileTask, result: CompileResult) -> None:
        """Of the first: its worker is at the second already, and the second is asked for while it is."""
        heard.append(task.name)
        begun.set()
        assert asked.wait(240)

    with CompileService(pool_in(tmp_path), told) as compiler:
        compiler.prefetch([first, second])
        assert begun.wait(240)
        assert compiler.compile([second], ignore, look=asked.set)
        assert compiler.compile([first, second], ignore)
    assert heard == [first.name, second.name]


def test_an_offer_needs_nobody_who_waits(begin: Callable[..., CompileService], heard: Heard, tmp_path: Path) -> None:
    offered, done = tasks_in(tmp_path)[:2], threading.Event()
    compiler = begin()
    store = compiler._on_result

    def told(task: CompileTask, result: CompileResult) -> None:
        store(task, result)
        if len(heard) == 2:
            done.set()

    compiler._on_result = told
    with compiler:
        compiler.prefetch(offered)
        assert done.wait(240)
    assert [name for name, _ in heard] == [task.name for task in offered]


def test_what_comes_then_is_compiled_after_what_is_waited_for_and_once(tmp_path: Path) -> None:
    first, second, third, fourth = tasks_in(tmp_path)
    heard, done = list[str](), threading.Event()

    def told(task: CompileTask, result: CompileResult) -> None:
        heard.append(task.name)
        if task.name == fourth.name:
            done.set()

    with CompileService(pool_in(tmp_path), told) as compiler:
        compiler.prefetch([first])
        assert compiler.compile([first, second], ignore, then=[second, third, first, fourth])
        assert done.wait(240)
        assert compiler.compile([third], ignore)
    assert heard == [task.name for task in (first, second, third, fourth)]


def test_time_that_is_over_ends_the_wait_and_what_was_not_begun(
    begin: Callable[..., CompileService], heard: Heard, tmp_path: Path
) -> None:
    """Checks after a budget must not wait for what its search had wanted."""
    *late, last = tasks_in(tmp_path)
    with begin() as compiler:
        assert not compiler.compile(late, ignore, until=time.monotonic() - 1)
        assert compiler.compile([last], ignore)
        assert len(compiler._queue) == 0
    begun = [name for name, _ in heard if name != last.name]
    assert begun == [task.name for task in late[: len(begun)]] and len(begun) <= 1


def test_who_looks_may_end_the_wait(begin: Callable[..., CompileService], tmp_path: Path) -> None:
    def look() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), begin() as compiler:
        compiler.compile(tasks_in(tmp_path), ignore, look=look)
    assert not [thread for thread in threading.enumerate() if thread.name == "compiler"]


def test_an_error_of_the_pool_reaches_who_waits(tmp_path: Path) -> None:
    nowhere = Target("no_such_backend", "x", 32, Architecture("mma"))
    pool = CompilePool(LANGUAGE, nowhere, 1, tmp_path / "no\0folder", tmp_path / "log.txt", tmp_path)
    with CompileService(pool, lambda task, result: None) as compiler:
        for _ in range(2):  # also for later callers
            with pytest.raises(EnvironmentFault, match="ended at its start"):
                compiler.compile(tasks_in(tmp_path), ignore)


def test_an_error_while_storing_reaches_who_waits(tmp_path: Path) -> None:
    def full(task: CompileTask, result: CompileResult) -> None:
        raise EnvironmentFault("the disk is full")

    with CompileService(pool_in(tmp_path), full) as compiler, pytest.raises(EnvironmentFault, match="the disk is full"):
        compiler.compile(tasks_in(tmp_path), ignore)
    assert compiler.results == {}

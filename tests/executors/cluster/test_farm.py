"""The compile farm: what comes home, and what becomes of the tasks of a machine that dies."""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, wait
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from samples import TEMPLATES, config, device, problem
from thread_workers import ThreadWorker

from gemm_tuner.compile import compile_tasks
from gemm_tuner.compile.compile_service import Compiler
from gemm_tuner.compile.task_queue import TaskQueue, key_of
from gemm_tuner.core.errors import CannotWrite, EnvironmentFault
from gemm_tuner.core.language import Artifact, CompileTask
from gemm_tuner.core.records import CompileResult, Status
from gemm_tuner.core.script import Script
from gemm_tuner.executors.cluster.compile_station import Compiled, CompileStation
from gemm_tuner.executors.cluster.farm import CompileNode, Farm
from gemm_tuner.executors.cluster.mailbox import Mailbox
from gemm_tuner.executors.cluster.setup import Setup
from gemm_tuner.executors.cluster.transport import ScriptText, read_scripts, write_files, write_scripts
from gemm_tuner.gemm.problem import GemmProblem
from gemm_tuner.languages.together import named
from gemm_tuner.languages.triton.language import LANGUAGE
from gemm_tuner.store.leases import Leases

SIZE = GemmProblem(64, 64, 64)


def task(number: int) -> CompileTask:
    return CompileTask(Script("s", "0" * 12, f"{number:012d}"), f"kernel{number}", "", SIZE)


class Here(Compiler):
    """This machine's own compiler."""

    workers = 1

    def __init__(self) -> None:
        self.compiled: list[str] = []

    def __enter__(self) -> Here:
        return self

    def __exit__(self, *_: object) -> None: ...

    def run(self, tasks: TaskQueue) -> Iterator[tuple[CompileTask, CompileResult]]:
        while (one := tasks.take()) is not None:
            self.compiled.append(one.name)
            yield one, CompileResult(one.name, one.specialization, Status.OK)


class Station:
    """Answers every task, or dies when it is given the one named ``dies_at``, or raises ``fault``."""

    def __init__(self, dies_at: str = "", fault: Exception | None = None) -> None:
        self.fault, self.kernels = fault, tuple[Artifact, ...]()
        self.box, self.dies_at, self.seen, self.kill = Mailbox(), dies_at, list[str](), lambda: None

    def open(self, setup: object) -> None: ...

    def submit(self, tasks: Iterable[CompileTask], scripts: object) -> None:
        if self.fault is not None:
            raise self.fault
        for one in tasks:
            self.seen.append(one.name)
            if self.dies_at in ("all", one.name):
                self.kill()
            self.box.put(Compiled(key_of(one), CompileResult(one.name, "", Status.OK), self.kernels))

    def news(self, wait_s: float) -> list[Any]:
        return self.box.take(min(wait_s, 0.2))

    def close(self) -> None: ...


def farm(tmp_path: Path, *stations: Station) -> tuple[Farm, Here]:
    (tmp_path / task(0).script.file).write_text("") if task(0).script else None
    nodes, here = [], Here()
    for number, station in enumerate(stations):
        worker = ThreadWorker(station, f"cores {number}", f"node {number}")
        station.kill = worker.kill
        nodes.append(CompileNode(worker, 2, worker.call("open", None)))
        wait([nodes[-1].ready])  # all machines are there before the first task is given to one
    return Farm(nodes, here, Leases.in_memory(), LANGUAGE, tmp_path / "cache", tmp_path), here


def answers(of: Farm, count: int, made: Callable[[int], CompileTask] = task) -> list[tuple[str, Status]]:
    queue = TaskQueue([made(number) for number in range(count)])
    with of:
        return sorted((one.name, result.status) for one, result in of.run(queue))


def everything(count: int) -> list[tuple[str, Status]]:
    return sorted((f"kernel{number}", Status.OK) for number in range(count))


def test_all_machines_compile_and_each_task_is_answered_once(tmp_path: Path) -> None:
    first, second = Station(), Station()
    of, here = farm(tmp_path, first, second)
    assert answers(of, 30) == everything(30)
    assert not here.compiled and first.seen and second.seen
    assert of.leases.counts() == {"finished": 30}


def of_both_languages(number: int) -> CompileTask:
    """Every second one is of a language that needs an extra."""
    one = task(number)
    assert one.script is not None
    return replace(one, script=replace(one.script, language="cute")) if number % 2 else one


def test_a_task_goes_only_to_a_machine_that_has_its_language(tmp_path: Path) -> None:
    bare, full = Station(), Station()
    of, here = farm(tmp_path, bare, full)
    of.nodes[0].lacks = frozenset({"cute"})
    assert answers(of, 30, of_both_languages) == everything(30)
    assert bare.seen and all(int(name.removeprefix("kernel")) % 2 == 0 for name in bare.seen)
    assert not here.compiled


def test_this_machine_compiles_a_language_whose_last_machine_died(tmp_path: Path) -> None:
    bare, full = Station(), Station(dies_at="all")
    of, here = farm(tmp_path, bare, full)
    of.nodes[0].lacks = frozenset({"cute"})
    assert answers(of, 10, of_both_languages) == everything(10)
    assert {f"kernel{number}" for number in range(1, 10, 2)} <= set(here.compiled)


def test_tasks_of_a_machine_that_dies_are_compiled_by_the_others(tmp_path: Path) -> None:
    of, here = farm(tmp_path, Station(dies_at="kernel1"), Station())
    assert answers(of, 20) == everything(20)
    assert len(of.nodes) == 1 and not here.compiled


def test_a_machine_that_is_silent_for_longer_than_its_leases_hold_is_given_up(tmp_path: Path) -> None:
    class Silent(Station):
        def news(self, wait_s: float) -> list[Any]:
            gone.wait()
            return []

    gone = threading.Event()
    of, here = farm(tmp_path, Silent())
    of.leases.hold_s = 0.1
    assert answers(of, 6) == everything(6)
    assert len(here.compiled) == 6 and not of.nodes
    gone.set()


def test_without_a_machine_that_is_left_this_one_compiles(tmp_path: Path) -> None:
    of, here = farm(tmp_path, Station(dies_at="all"), Station(dies_at="all"))
    assert answers(of, 6) == everything(6)
    assert len(here.compiled) == 6
    of, here = farm(tmp_path)
    assert answers(of, 2) == everything(2) and len(here.compiled) == 2


def test_a_machine_on_which_anything_fails_is_named_and_left_out(tmp_path: Path) -> None:
    of, here = farm(tmp_path, Station(fault=PermissionError("its disk is read-only")), Station())
    of.say = (said := list[str]()).append
    assert answers(of, 20) == everything(20)
    assert len(said) == 1 and "read-only" in said[0] and not here.compiled


def test_cores_that_others_use_for_ever_are_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gemm_tuner.executors.cluster.farm.START_LIMIT_S", 0.1)
    of, here = farm(tmp_path, Station())
    of.nodes[0].ready = Future()  # of an actor that Ray has no cores for
    assert answers(of, 3) == everything(3)
    assert len(here.compiled) == 3


def test_kernels_that_cannot_be_kept_here_are_no_fault_of_a_machine(tmp_path: Path) -> None:
    station = Station()
    station.kernels = (Artifact("A" * 52, (("kernel.json", b"{}"),)),)
    of, _ = farm(tmp_path, station)
    of.cache.write_text("a file where the cache should be")
    with pytest.raises(CannotWrite, match="cannot be written"):
        answers(of, 2)


def test_a_task_at_which_machine_after_machine_dies_is_given_up(tmp_path: Path) -> None:
    of, here = farm(tmp_path, *(Station(dies_at="kernel0") for _ in range(4)))
    found = dict(answers(of, 5))
    assert found.pop("kernel0") == Status.COMPILE_ERROR
    assert set(found.values()) == {Status.OK} and "kernel0" not in here.compiled


def test_a_station_sends_kernels_home_as_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMM_TUNER_CACHE_DIR", str(tmp_path / "there"))
    station = CompileStation()
    worker = ThreadWorker(station)
    setup = Setup(("triton",), device("sm_90").target, "gemm", "cache", 2**30, workers=1)
    own = CompileTask(None, "", "", SIZE)  # the measurement's own kernels
    node = CompileNode(worker, 1, worker.call("open", setup))
    of = Farm([node], Here(), Leases.in_memory(), LANGUAGE, tmp_path / "here", tmp_path)
    with of:
        ((_, result),) = of.run(TaskQueue([own]))
    assert result.status == Status.OK and result.entries
    for entry in result.entries:
        assert LANGUAGE.pack(tmp_path / "here", entry) == LANGUAGE.pack(tmp_path / "there" / "kernels" / "cache", entry)


def test_scripts_and_files_that_are_not_what_they_say_are_refused(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFault, match="did not arrive"):
        write_scripts([ScriptText(f"name_{'0' * 12}.py", "import os")], tmp_path / "scripts")
    assert not list((tmp_path / "scripts").iterdir())
    with pytest.raises(EnvironmentFault, match="none of its folder"):
        write_files([("../escaped", b"")], tmp_path / "files")
    assert read_scripts(tmp_path, []) == ()


def test_a_station_compiles_what_is_in_another_language_than_the_run_s_kind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the extra is there or not, the answer is of that language's compiler."""
    monkeypatch.setenv("GEMM_TUNER_CACHE_DIR", str(tmp_path / "there"))
    one = config(family="gemm_cute", num_warps=0, num_stages=0)
    wanted, target = [(problem(256, 128, 512), one)], device("sm_90").target
    scripts = compile_tasks.write_scripts(TEMPLATES, tmp_path, wanted, target)
    worker = ThreadWorker(CompileStation())
    setup = Setup(("triton", "cute"), target, "gemm", "cache", 2**30, workers=1)
    language = named(setup.languages)
    node = CompileNode(worker, 1, worker.call("open", setup))
    of = Farm([node], Here(), Leases.in_memory(), language, tmp_path / "here", tmp_path)
    with of:
        tasks = compile_tasks.tasks_for(wanted, scripts, target, longest_first=False)
        ((_, result),) = of.run(TaskQueue(tasks))
    if importlib.util.find_spec("quack") is None:
        assert "nvidia-cutlass-dsl" in result.message
    else:
        assert result.status == Status.OK, result.message
        assert language.pack(tmp_path / "here", result.entries[0]).files

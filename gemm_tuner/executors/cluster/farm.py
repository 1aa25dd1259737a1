"""Compiles on all machines of a cluster: tasks are leased to them, what they compile comes into the run's cache."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gemm_tuner.compile.compile_pool import Answer
from gemm_tuner.compile.compile_service import Compiler
from gemm_tuner.compile.task_queue import TaskKey, TaskQueue, key_of
from gemm_tuner.core.errors import FREE_SPACE, CannotWrite
from gemm_tuner.core.language import Artifact, CompileTask, Language
from gemm_tuner.core.records import CompileResult, Status
from gemm_tuner.executors.cluster.compile_station import Compiled
from gemm_tuner.executors.cluster.transport import read_scripts
from gemm_tuner.executors.cluster.worker import Worker, WorkerLost
from gemm_tuner.store.leases import BEAT_S, Lease, Leases

# Tasks that a machine holds for each of its workers: one that runs, and one to go on with.
TASKS_A_WORKER = 2
# How soon new tasks, or the end of the queue, are seen.
LOOK_S = 0.05
# A machine whose cores others use for so long at its start is given no work.
START_LIMIT_S = 120.0
# A task that so many machines die with has failed. Many are held at a time, so the last of these held it alone.
MOST_LOSSES = 3
CLOSE_LIMIT_S = 10.0


class NodeFault(Exception):
    """A machine cannot compile, or sent what is no kernel."""


def said(answer: Future[Any]) -> Any:
    """What a station answered. Raises WorkerLost, and NodeFault for what the station raised."""
    try:
        return answer.result()
    except WorkerLost:
        raise
    except Exception as error:
        raise NodeFault(str(error) or type(error).__name__) from error


def item_of(task: CompileTask) -> str:
    """The task in the lease table."""
    return " ".join(key_of(task))


@dataclass
class CompileNode:
    """A machine of the farm. workers: its compile processes. ready: the answer of its station's ``open``. held: what it
    was given and has not answered. alone: a suspect, beside which it is given nothing. began_s: when it was asked to
    start. lacks: languages whose tasks it is not given."""

    worker: Worker
    workers: int
    ready: Future[Any]
    lacks: frozenset[str] = frozenset()
    held: dict[TaskKey, tuple[CompileTask, Lease]] = field(default_factory=dict)
    alone: TaskKey | None = None
    scripts: set[str] = field(default_factory=set)
    sent: list[Future[Any]] = field(default_factory=list)
    news: Future[Any] | None = None
    began_s: float = field(default_factory=time.monotonic)

    @property
    def leases(self) -> list[Lease]:
        return [lease for _, lease in self.held.values()]

    @property
    def room(self) -> int:
        return 0 if self.alone in self.held else TASKS_A_WORKER * self.workers - len(self.held)

    def fits(self, task: CompileTask) -> bool:
        return task.script is None or task.script.language not in self.lacks


@dataclass
class Farm(Compiler):
    """here: compiles when no machine of the farm is left for a task, or there is none. cache, scripts_dir: of the run.

    say: hears of a machine that is given no more work.
    """

    nodes: list[CompileNode]
    here: Compiler
    leases: Leases
    language: Language
    cache: Path
    scripts_dir: Path
    say: Callable[[str], None] = lambda _: None

    @property
    def workers(self) -> int:
        return sum(node.workers for node in self.nodes) or self.here.workers

    def __enter__(self) -> Farm:
        self.here.__enter__()
        return self

    def __exit__(self, *of: object) -> None:
        closing = [node.worker.call("close") for node in self.nodes]
        wait(closing, CLOSE_LIMIT_S)
        for node in self.nodes:
            node.worker.kill()
        self.here.__exit__(*of)

    def run(self, tasks: TaskQueue) -> Iterator[Answer]:
        while self.nodes and not tasks.closed:
            for node in list(self.nodes):
                yield from self._guarded(node, tasks, self._feed)
            if not any(node.held for node in self.nodes) and len(tasks) == 0:
                if not tasks.wait():
                    return
                continue
            if not any(node.held for node in self.nodes) and tasks.first(self._fits_any) is None:
                break
            asked = [answer for node in self.nodes for answer in (node.ready, node.news) if answer]
            wait([answer for answer in asked if not answer.done()], LOOK_S, FIRST_COMPLETED)
            for node in list(self.nodes):
                yield from self._hear(node, tasks)
        if not tasks.closed:
            yield from self.here.run(tasks)

    def _fits_any(self, task: CompileTask) -> bool:
        return any(node.fits(task) for node in self.nodes)

    def _feed(self, node: CompileNode, tasks: TaskQueue) -> list[Answer]:
        """Gives a machine what it has room for, with the scripts that it lacks."""
        if not node.ready.done():
            if time.monotonic() - node.began_s > START_LIMIT_S:
                raise NodeFault(f"it did not start within {START_LIMIT_S:g} s: is another job on its cores?")
            return []
        said(node.ready)
        taken = self._take(node, tasks)
        if taken:
            names = {item_of(task): task for task in taken}
            self.leases.offer(names)
            self.leases.reopen(names)
            for lease in self.leases.take(names, node.worker.name, node.worker.node, time.monotonic()):
                node.held[key_of(names[lease.item])] = names[lease.item], lease
            files = {task.script.file for task in taken if task.script} - node.scripts
            node.scripts |= files
            node.sent.append(node.worker.call("submit", taken, read_scripts(self.scripts_dir, sorted(files))))
        if node.news is None:
            node.news = node.worker.call("news", BEAT_S / 2)
            self.leases.beat(node.worker.name, time.monotonic())  # from now on it may be silent for so long
        return []

    def _take(self, node: CompileNode, tasks: TaskQueue) -> list[CompileTask]:
        """A suspect goes alone, to a machine that holds nothing else: then a crash is attributed to no other."""
        taken: list[CompileTask] = []
        while len(taken) < node.room and (task := tasks.take(node.fits)) is not None:
            is_suspect = self.leases.times_lost(item_of(task)) >= MOST_LOSSES - 1
            if is_suspect and (taken or node.held):
                tasks.requeue(task)
                break
            taken.append(task)
            if is_suspect:
                node.alone = key_of(task)
                break
        return taken

    def _hear(self, node: CompileNode, tasks: TaskQueue) -> list[Answer]:
        return self._guarded(node, tasks, self._answers)

    def _answers(self, node: CompileNode, tasks: TaskQueue) -> list[Answer]:
        for answer in [one for one in node.sent if one.done()]:
            node.sent.remove(answer)
            said(answer)
        if node.news is None or not node.news.done():
            if node.news is not None and not self.leases.are_held(node.leases, time.monotonic()):
                raise WorkerLost(f"no sign of life for {self.leases.hold_s:g} s")
            return []
        messages: list[Compiled] = said(node.news)
        node.news, answers, leases = None, [], []
        for message in messages:
            if message.key in node.held:
                self._keep(message.kernels)
                task, lease = node.held.pop(message.key)
                leases.append(lease)
                answers.append((task, message.result))
        self.leases.finish_all(leases)
        return answers

    def _keep(self, kernels: Iterable[Artifact]) -> None:
        """Raises CannotWrite when they cannot be written here, NodeFault for what is no kernel."""
        try:
            for kernel in kernels:
                self.language.unpack(kernel, self.cache)
        except OSError as error:
            raise CannotWrite(
                f"compiled kernels cannot be written: {error}", where=str(self.cache), hint=FREE_SPACE
            ) from error
        except ValueError as error:
            raise NodeFault(str(error)) from error

    def _guarded(self, node: CompileNode, tasks: TaskQueue, step: Any) -> list[Answer]:
        """A machine that is lost, or cannot compile, gives back what it held. A fault of this machine ends the run."""
        try:
            return step(node, tasks)  # type: ignore[no-any-return]
        except (WorkerLost, NodeFault) as error:
            self.say(f"{node.worker.name} is given no more to compile: {error}")
            self.nodes.remove(node)
            node.worker.kill()
            self.leases.lose(node.worker.name)
            given_up = []
            for task, lease in node.held.values():
                if self.leases.times_lost(lease.item) >= MOST_LOSSES:
                    text = f"{MOST_LOSSES} machines died while they held it"
                    result = CompileResult(task.name, task.specialization, Status.COMPILE_ERROR, message=text)
                    given_up.append((task, result))
                else:
                    tasks.requeue(task)
            return given_up

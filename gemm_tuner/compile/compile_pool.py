"""A pool of compile worker processes in which no compilation can block or kill the run.

``multiprocess.Pool`` waits forever for the task of a worker that died (cpython bpo-22393). So each worker here has its
own pipe, process group and deadline.
"""

from __future__ import annotations

import math
import os
import statistics
import time
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import multiprocess
from multiprocess.connection import wait

from gemm_tuner.compile import fork_server
from gemm_tuner.compile.compile_worker import serve
from gemm_tuner.compile.pool_worker import START_LIMIT_S, Worker
from gemm_tuner.compile.task_queue import TaskKey, TaskQueue, key_of
from gemm_tuner.compile.worker_servers import imports_of, without_main_script
from gemm_tuner.core.errors import FREE_SPACE, EnvironmentFault
from gemm_tuner.core.language import CompileTask, Language
from gemm_tuner.core.records import CompileResult, Status, Target
from gemm_tuner.languages.together import Together
from gemm_tuner.system import memory
from gemm_tuner.system.processes import FROM_OUTSIDE, MOST_CRASHES

# An exit status is waited for this long: on a busy machine the fork server may take seconds to pass it on.
EXIT_LIMIT_S = 60.0
# Interval at which the queue is polled for new tasks, and for its end, while no worker answers.
LOOK_S = 0.05
# A worker that waits for a core or a disk at its deadline has this much longer, again and again.
LONGER_S = 1.0
# The time limit of a compilation is this many times the median so far, at least 30 s and at most the pool's limit.
TIMES_THE_MEDIAN = 30.0
LEAST_LIMIT_S = 30.0
ENOUGH_TO_JUDGE = 20
# After this many consecutive failures of workers to start, the machine is reported as faulty.
MOST_FAILED_STARTS = 3
# The median is that of this many latest compilations.
REMEMBERED = 200
# Exit statuses of a worker that was killed, or whose fork server was.
NO_FAULT_OF_THE_TASK = FROM_OUTSIDE | {fork_server.SERVER_DIED}

Answer = tuple[CompileTask, CompileResult]


@dataclass
class CompilePool:
    """A pool whose method ``run`` compiles the tasks of a queue in order. Use it as a context manager.

    cache:        folder of the compiled kernels.
    scripts_dir:  folder of the tasks' scripts.
    limit_s:      largest time limit of a compilation; a worker that exceeds it is killed (COMPILE_TIMEOUT), unless it
                  waits for a core or a disk and has not had so much CPU time.
    memory_bytes: memory that a worker may use beyond its size at the start; 0: an equal share of the machine's.
    kind:         kind of the problems, whose workload may prepare workers; "" for none.

    Each language of a ``Together`` has workers of its own, which start with its first task. Before those of the others,
    which may take seconds to start, one worker looks in the cache for what they are to compile.
    """

    language: Language
    target: Target
    workers: int
    cache: Path
    log_path: Path
    scripts_dir: Path
    limit_s: float = 60.0
    memory_bytes: int = 0
    kind: str = ""
    _workers: list[Worker] = field(default_factory=list)
    _seconds: defaultdict[str, deque[float]] = field(
        default_factory=lambda: defaultdict(lambda: deque(maxlen=REMEMBERED))
    )
    _deaths: Counter[TaskKey] = field(default_factory=Counter)
    _absent: set[TaskKey] = field(default_factory=set)  # what was looked for in the cache, and is not there
    _failed_starts: int = 0

    def __enter__(self) -> CompilePool:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers:
            worker.kill()
        self._workers.clear()

    @cached_property
    def _languages(self) -> dict[str, Language]:
        others = self.language.others if isinstance(self.language, Together) else ()
        return {"": self.language, **{one.name: one for one in others}}

    @cached_property
    def _arguments(self) -> dict[str, str]:
        return {name: one.worker_argument(self.cache.parent) for name, one in self._languages.items()}

    def _takers_of(self, task: CompileTask) -> tuple[str, bool]:
        """Which workers take a task: those of this language, and whether the one that looks in the cache."""
        language = self._language_of(task)
        return language, bool(language) and key_of(task) not in self._absent

    def _language_of(self, task: CompileTask) -> str:
        named = task.script.language if task.script else ""
        return named if named in self._languages else ""

    def _start_worker(self, name: str, finds: bool) -> Worker:
        ours, theirs = multiprocess.Pipe()
        at_work = {"" if finds else name, *(worker.language for worker in self._workers if not worker.finds)}
        share = self.memory_bytes or memory.share_bytes(self.workers * len(at_work))
        paths, language = (str(self.log_path), str(self.scripts_dir)), self._languages[name]
        environ = {key: value for key, value in os.environ.items() if key not in self.language.removed_variables}
        environ |= self.language.environment(self.cache)
        arguments = (
            theirs,
            language.name,
            self.target,
            environ,
            self._arguments[name],
            *paths,
            share,
            self.kind,
            finds,
        )
        with without_main_script():
            process = fork_server.started(serve, arguments, *self._imports_of(name, finds))
        theirs.close()
        return Worker(process, ours, name, finds, deadline=time.monotonic() + START_LIMIT_S)

    def _imports_of(self, name: str, finds: bool) -> tuple[tuple[str, ...], Mapping[str, str]]:
        """``imports_of`` these workers."""
        return imports_of(self.language if finds else self._languages[name], self.kind, self.target)

    def run(self, tasks: Iterable[CompileTask] | TaskQueue) -> Iterator[Answer]:
        """Yields (task, result) in the order of completion, until the queue ends.

        Raises EnvironmentFault if workers cannot start or cannot write the cache.
        """
        queue = tasks if isinstance(tasks, TaskQueue) else TaskQueue(tasks)
        while not queue.closed:
            self._hand_out(queue)
            if any(worker.task is not None for worker in self._workers) or len(queue):
                yield from self._step(queue)
            elif not queue.wait():
                return

    def _hand_out(self, queue: TaskQueue) -> None:
        """Gives tasks to idle workers, and starts more workers while there are more tasks than workers that are idle or
        starting."""
        self._give(queue)
        there = Counter((worker.language, worker.finds) for worker in self._workers)
        most = {("", False): self.workers}  # nobody looks in the cache for these before they are compiled
        for language in filter(None, self._languages):
            most |= {(language, True): 1, (language, False): self.workers}
        if all(there[takers] >= most[takers] for takers in most):
            return
        free = Counter((worker.language, worker.finds) for worker in self._workers if worker.task is None)
        waiting = queue.counts(self._takers_of)
        for takers in most:
            missing = min(most[takers] - there[takers], waiting[takers] - free[takers])
            if missing > 0 and fork_server.is_ready(*self._imports_of(*takers)):  # else others would wait for it, too
                self._workers += [self._start_worker(*takers) for _ in range(missing)]

    def _give(self, queue: TaskQueue) -> None:
        """Gives the next tasks to idle workers. As many compile at a time as there are workers of one language, so that
        no language takes the cores from what the queue has first."""
        idle = [worker for worker in self._workers if worker.ready and worker.task is None]
        of_language = defaultdict[str, list[Worker]](list)
        for worker in idle:
            if worker.finds:
                self._let_find(worker, queue)
            else:
                of_language[worker.language].append(worker)

        def has_worker(task: CompileTask) -> bool:
            language, finds = self._takers_of(task)
            return not finds and bool(of_language[language])

        at_work = sum(worker.task is not None and not worker.finds for worker in self._workers)
        while at_work < self.workers and (task := queue.take(has_worker)):
            worker = of_language[self._language_of(task)].pop(0)
            worker.give(task, self.limit(worker.language))
            at_work += 1

    def _let_find(self, worker: Worker, queue: TaskQueue) -> None:
        """Lets a worker look in the cache for the next task that was not looked for, and that goes on waiting."""
        task = queue.first(lambda task: self._takers_of(task) == (worker.language, True))
        if task is not None:
            worker.give(task, self.limit(worker.language))

    def limit(self, language: str = "") -> float:
        """Time limit of the next compilation, seconds; it adapts to the times of earlier ones of the language."""
        seconds = self._seconds[language]
        if len(seconds) < ENOUGH_TO_JUDGE:
            return self.limit_s
        return min(self.limit_s, max(LEAST_LIMIT_S, TIMES_THE_MEDIAN * statistics.median(seconds)))

    def _step(self, queue: TaskQueue) -> Iterator[Answer]:
        """Waits up to LOOK_S, and yields the tasks that are completed or over their deadline."""
        busy = {w.connection: w for w in self._workers if w.task is not None or not w.ready}
        next_deadline = min((w.deadline for w in busy.values()), default=math.inf)
        timeout = max(0.0, next_deadline - time.monotonic())
        answered = wait(list(busy), timeout=min(timeout, LOOK_S))
        for connection in answered:
            worker = busy[connection]
            try:
                answer = worker.answer()
            except (EOFError, OSError):
                worker.process.join(EXIT_LIMIT_S)  # it is exiting; its own exit status tells more than that of a kill
                yield from self._replace(worker, queue, Status.COMPILE_ERROR, "the compiler died")
                continue
            if worker.ready and isinstance(answer, str):
                raise EnvironmentFault(answer, where=str(self.cache), hint=FREE_SPACE)
            self._failed_starts = 0
            done, worker.task, worker.ready = worker.task, None, True
            if done is not None and answer is None:
                self._absent.add(key_of(done))
            elif done is not None and (not worker.finds or queue.remove(done)):
                if not answer.cached:
                    self._seconds[worker.language].append(answer.seconds)
                self._give(queue)
                yield done, answer
        now = time.monotonic()
        for worker in busy.values():
            if worker in self._workers and (worker.task or not worker.ready) and worker.deadline < now:
                if worker.waits() or worker.connection.poll():  # or has just answered, or died
                    worker.deadline = now + LONGER_S
                    continue
                message = f"not compiled within {worker.limit_s:g} s"
                yield from self._replace(worker, queue, Status.COMPILE_TIMEOUT, message)

    def _replace(self, worker: Worker, queue: TaskQueue, status: Status, message: str) -> Iterator[Answer]:
        """Kills a worker and yields a failure for its task. A new worker is started when there is a task for it.

        If something else killed the worker (such as the OOM killer), the task is retried once.
        """
        task = worker.task
        worker.kill()
        exit_code = worker.process.exitcode
        self._workers.remove(worker)
        if not worker.ready:
            self._failed_starts += 1
            if self._failed_starts < MOST_FAILED_STARTS:
                return
            what = f"a compile worker ended at its start, exit status {exit_code}"
            language = self.language if worker.finds else self._languages[worker.language]
            raise EnvironmentFault(what, where=str(self.log_path), hint=f"does `{language.test_command}` work?")
        if task is not None and worker.finds:
            self._absent.add(key_of(task))
        elif task is not None:
            key = key_of(task)
            self._deaths[key] += 1
            if (
                status == Status.COMPILE_ERROR
                and exit_code in NO_FAULT_OF_THE_TASK
                and self._deaths[key] < MOST_CRASHES
            ):
                queue.requeue(task)
                return
            text = message if status == Status.COMPILE_TIMEOUT else f"{message} (exit {exit_code})"
            seconds = time.monotonic() - worker.given
            yield task, CompileResult(task.name, task.specialization, status, seconds=seconds, message=text)

"""The compile stage of a run; results go to the store and to the states of the sizes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType

from gemm_tuner.compile import compile_tasks
from gemm_tuner.compile.compile_service import Compiler, CompileService
from gemm_tuner.compile.compile_tasks import Wanted, interleaved
from gemm_tuner.compile.task_queue import TaskKey, key_of
from gemm_tuner.core.errors import EnvironmentFault
from gemm_tuner.core.language import CompileTask, Language
from gemm_tuner.core.records import CompileResult, Device, Status
from gemm_tuner.core.script import Script
from gemm_tuner.languages import kernel_cache
from gemm_tuner.pipeline.limits import Limits
from gemm_tuner.pipeline.run_log import RunLog
from gemm_tuner.space.reasons import most_common
from gemm_tuner.space.size_state import Named, SizeState
from gemm_tuner.store.run_folder import RunFolder
from gemm_tuner.store.store import KERNELS_WANTED, Store

# The name of a configuration, and the task.
OnWanted = Callable[[str, CompileTask], None]

NO_LIMIT = float("inf")


class CompileStage:
    """Compiles kernels for a run. Use it as a context manager around everything the run compiles, so that workers start
    only once."""

    def __init__(
        self,
        scripts: dict[tuple[str, str], Script],
        compiler: Compiler,
        device: Device,
        language: Language,
        folder: RunFolder,
        store: Store,
        limits: Limits,
        log: RunLog,
        on_wanted: OnWanted = lambda name, task: None,
    ) -> None:
        """on_wanted: hears which configuration runs what a task compiles."""
        self._scripts, self._device, self._run_store, self._limits, self._log = scripts, device, store, limits, log
        self._on_wanted = on_wanted
        self._counted: set[TaskKey] = set()
        self._workers, self._language = compiler.workers, language
        self._cache = kernel_cache.identity(folder.cache)
        self._began = 0.0  # of time.monotonic()
        self._service = CompileService(compiler, self._store, store.compiles(self._cache))

    def __enter__(self) -> CompileStage:
        self._began = time.monotonic()
        self._service.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._service.__exit__(kind, error, trace)
        if error is None:
            self._say_failed()
        self._log.count("kernels compiled", self._service.compiled)
        self._log.count("kernels found in the cache", self._service.cached)

    def _say_failed(self) -> None:
        """Names what did not compile by its most common reason, in one line. If all of a size failed, its own line does
        so."""
        results = list(self._service.results.values())
        failed = [one for one in results if one.status in (Status.COMPILE_ERROR, Status.COMPILE_TIMEOUT)]
        if failed and len(failed) < len(results) - 1:  # besides the measurement's own kernels
            self._log.say(f"{len(failed)} of {len(results) - 1} kernels do not compile; {common_reason(failed)}")

    @property
    def busy_s(self) -> float:
        """Total time of workers in compilations so far, seconds."""
        return self._service.busy_s

    def note_idle(self) -> None:
        """Records the share of the time since this stage began in which compile workers were idle."""
        idle = 1 - self.busy_s / (self._workers * (time.monotonic() - self._began))
        self._log.notes["compile_pool_idle_pct"] = round(100 * max(0.0, idle), 1)

    def _store(self, task: CompileTask, result: CompileResult) -> None:
        if task.script is not None:
            self._run_store.add_compiles({key_of(task): result}, self._cache)

    def _tasks(self, wanted: Wanted, *, longest_first: bool) -> list[CompileTask]:
        wanted, target = list(wanted), self._device.target
        for problem, config in wanted:
            self._on_wanted(config.name, compile_tasks.task_for(self._scripts, problem, config, target))
        return compile_tasks.tasks_for(wanted, self._scripts, self._device.target, longest_first=longest_first)

    def restore(self, states: Iterable[SizeState]) -> None:
        """Records the compile results of configurations that an earlier start of this run timed, or that failed when
        they were timed, even if their binaries have been evicted from the cache."""
        known = self._run_store.compiles()
        for state in states:
            compile_tasks.record_compiles(state, list(state.rows), known, self._scripts, self._device, self._counted)

    def compile(self, wanted: Wanted, title: str, until: float = NO_LIMIT, then: Wanted = ()) -> None:
        """Compiles the kernels of these configurations for these problems, until ``time.monotonic()`` reaches
        ``until``. then: what idle workers compile meanwhile, as by ``prefetch``.

        With a limit they are compiled in the given order, else longest first, so that no long one remains at the end.

        Raises EnvironmentFault if the measurement's own kernels do not compile, and KeyboardInterrupt on a signal.
        """
        service = self._service
        asked = self._tasks(wanted, longest_first=until == NO_LIMIT)
        tasks = [task for task in asked if key_of(task) not in service.results]
        support = compile_tasks.support_task(asked[0]) if asked else None
        # What was prefetched may be all that is asked for.
        lacks_support = service.ended and support is not None and key_of(support) not in service.results
        if support is None or not (tasks or lacks_support):
            if then := list(then):
                self.prefetch(then)
            return
        self._run_store.set_fact(KERNELS_WANTED, self._run_store.num_compiles() + len(tasks))
        with self._log.step(title, len(tasks) + 1) as step:
            of = step.advance, until, self._limits.interruption.check
            done = service.compile([support, *tasks], *of, self._tasks(then, longest_first=False))
        result = service.results.get(key_of(support))
        if done and result is not None and result.status != Status.OK:
            raise EnvironmentFault(f"{self._language.name} compiles nothing for this target: {result.message}")

    def compile_sizes(self, wanted: Named, title: str, until: float = NO_LIMIT, then: Wanted = ()) -> None:
        """``compile`` for the named configurations of these sizes. Records the results in the sizes' states."""
        wanted = list(wanted)
        self.compile(interleaved(wanted), title, until, then)
        for state, names in wanted:
            compile_tasks.record_compiles(
                state, names, self._service.results, self._scripts, self._device, self._counted
            )

    def has(self, wanted: Wanted) -> bool:
        """Whether the kernels of these configurations for these problems are compiled, or failed to."""
        return self._left(wanted) == 0

    def left_s(self, wanted: Wanted) -> float:
        """About how long the workers still take to compile these, seconds, if as many of them are found in the cache as
        so far."""
        return self._left(wanted) * self._service.mean_s / self._workers

    def wait_s(self, wanted: Wanted) -> float:
        """About how long it takes until all of these are compiled, seconds. Where any is left, at least as long as one
        that is not in the cache: those that are come at once."""
        left_s = self.left_s(wanted)
        return max(left_s, self._service.compile_s) if left_s else 0.0

    def _left(self, wanted: Wanted) -> int:
        """How many kernels of these are not compiled yet."""
        found = (compile_tasks.task_for(self._scripts, *one, self._device.target) for one in wanted)
        return len({key_of(task) for task in found} - self._service.results.keys())

    def prefetch(self, wanted: Wanted) -> None:
        """Lets idle workers compile these, in order, because they may be needed next; first what the measurement itself
        launches, without which a run that goes on could find all that it asks for compiled."""
        tasks = self._tasks(wanted, longest_first=False)
        self._service.prefetch([*map(compile_tasks.support_task, tasks[:1]), *tasks])


def common_reason(failed: Sequence[CompileResult]) -> str:
    """The most common reason, and apart from it how many kernels reached the time limit, which a flag raises."""
    count, text = most_common(one.message for one in failed)
    late = [one for one in failed if one.status is Status.COMPILE_TIMEOUT]
    if not late:
        return f"{count} say: {text}"
    if most_common(one.message for one in late) == (count, text):
        return f"{count} say: {text}; --compile_limit gives longer"
    return f"{count} say: {text}; {len(late)} took too long: --compile_limit gives longer"

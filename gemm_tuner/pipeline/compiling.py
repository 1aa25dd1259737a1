"""A run's compiles: wanted ones are waited for and booked, likely ones are done beside the timing, all are stored."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from itertools import zip_longest
from types import TracebackType

from gemm_tuner.compile import compile_tasks
from gemm_tuner.compile.compile_pool import CompilePool
from gemm_tuner.compile.compile_service import CompileService, key_of
from gemm_tuner.compile.compile_tasks import Binary
from gemm_tuner.core.errors import EnvironmentFault
from gemm_tuner.core.records import CompileResult, KernelConfig, Status
from gemm_tuner.gemm.problem import GemmProblem
from gemm_tuner.languages.triton import kernel_cache
from gemm_tuner.languages.triton.compile_worker import CompileTask
from gemm_tuner.languages.triton.kernel_env import kernel_env
from gemm_tuner.pipeline.session import Session
from gemm_tuner.source.codegen import Script
from gemm_tuner.space.size_state import SizeState
from gemm_tuner.store.store import KERNELS_WANTED, BinaryKey
from gemm_tuner.system import progress

Wanted = Iterable[tuple[GemmProblem, KernelConfig]]


class Compiling:
    """Use as a context manager around all that a run compiles: workers start once."""

    def __init__(self, session: Session, scripts: dict[tuple[str, str], Script]) -> None:
        self._session, self._scripts = session, scripts
        self._target = session.environment.device.target
        self._class_of = {str(script.path): key for key, script in scripts.items()}
        self._booked: set[Binary] = set()
        self._lock = threading.Lock()
        settings, folder = session.settings, session.folder
        variables = kernel_env(folder.cache)
        log = folder.raw / "compile.log"
        pool = CompilePool(self._target, settings.compile_workers, variables, log, settings.compile_limit_s)
        self._cache = kernel_cache.identity(folder.cache)
        self._compiler = CompileService(pool, self._store, self._by_script(session.store.compiles(self._cache)))

    def __enter__(self) -> Compiling:
        self._compiler.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._compiler.__exit__(kind, error, trace)
        self._session.count("kernels compiled", self._compiler.compiled)
        self._session.count("kernels found in the cache", self._compiler.cached)

    @property
    def busy_s(self) -> float:
        """Seconds that workers spent in compiles so far, added up."""
        return self._compiler.busy_s

    def _by_script(self, compiles: Mapping[BinaryKey, CompileResult]) -> dict[Binary, CompileResult]:
        """What an earlier part of this run compiled, by its script of today."""
        found = {}
        for (family, signature, binary, special), result in compiles.items():
            script = self._scripts.get((family, signature))
            if script is not None:
                found[str(script.path), binary, special] = result
        return found

    def restore(self, states: Iterable[SizeState]) -> None:
        """Books what an earlier part of this run compiled for what it has timed, wherever the binaries are now."""
        known, device = self._by_script(self._session.store.compiles()), self._session.environment.device
        for state in states:
            timed = list(state.screened_us())
            compile_tasks.record_compiles(state, timed, known, self._scripts, device, self._booked)

    def _store(self, task: CompileTask, result: CompileResult) -> None:
        if task.name:
            key = (*self._class_of[task.script], task.name, task.specialization)
            self._session.store.add_compiles({key: result}, self._cache)

    def _tasks(self, wanted: Wanted, *, longest_first: bool) -> list[CompileTask]:
        return compile_tasks.tasks_for(wanted, self._scripts, self._target, longest_first=longest_first)

    def problems(self, wanted: Wanted, title: str, until: float = float("inf")) -> None:
        """Compiles what these problems need of these configurations, until ``time.monotonic()`` is ``until``: in the
        order given where time may run out, else longest first, so that no worker is left with a long one at the end.

        Raises EnvironmentFault when nothing at all compiles.
        """
        tasks = self._tasks(wanted, longest_first=until == float("inf"))
        tasks = [task for task in tasks if key_of(task) not in self._compiler.results]
        if not tasks:
            return
        support = compile_tasks.support_task(tasks[0])
        session = self._session
        session.store.set_fact(KERNELS_WANTED, session.store.num_compiles() + len(tasks))
        with session.stage(title), progress.step(title, len(tasks) + 1, session.console) as step:
            done = self._compiler.compile([support, *tasks], step.advance, until, session.interruption.check)
        result = self._compiler.results.get(key_of(support))
        if done and result is not None and result.status != Status.OK:
            raise EnvironmentFault(f"Triton compiles nothing for this target: {result.message}")

    def states(self, wanted: Iterable[tuple[SizeState, list[str]]], title: str, until: float = float("inf")) -> None:
        """Compiles the named configurations of these sizes and books what came of them."""
        wanted = list(wanted)
        self.problems(pairs(wanted), title, until)
        for state, names in wanted:
            compile_tasks.record_compiles(
                state, names, self._compiler.results, self._scripts, self._session.environment.device, self._booked
            )

    def offer(self, wanted: Iterable[tuple[SizeState, list[str]]]) -> None:
        """Lets idle workers compile these in their order: they may be asked for next."""
        self._compiler.prefetch(self._tasks(pairs(wanted), longest_first=False))


def pairs(wanted: Iterable[tuple[SizeState, list[str]]]) -> Wanted:
    """All of them, the sizes in turn: the first configuration of each, then the second."""
    rows = [[(state.problem, state.kept[name]) for name in names] for state, names in wanted]
    return [pair for turn in zip_longest(*rows) for pair in turn if pair is not None]

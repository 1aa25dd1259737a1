"""On a machine that compiles: a pool of workers, fed with tasks, whose kernels are sent home as content."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from gemm_tuner.compile.task_queue import TaskKey, TaskQueue, key_of
from gemm_tuner.core.errors import EnvironmentFault
from gemm_tuner.core.language import Artifact, CompileTask
from gemm_tuner.core.records import CompileResult, Status
from gemm_tuner.executors.cluster.mailbox import Mailbox
from gemm_tuner.executors.cluster.setup import Setup, local_executor
from gemm_tuner.executors.cluster.transport import ScriptText, write_scripts


@dataclass(frozen=True, slots=True)
class Compiled:
    """kernels: the entries of the result, as content."""

    key: TaskKey
    result: CompileResult
    kernels: tuple[Artifact, ...]


class CompileStation:
    """Every method may be called while others run."""

    def __init__(self) -> None:
        self._stack, self._box, self._queue = ExitStack(), Mailbox(), TaskQueue(stays_open=True)

    def open(self, setup: Setup) -> None:
        root = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="gemm_tuner-")))
        executor = local_executor(setup, root, self._stack, wind_down=lambda: False)
        self._language, self._folder = executor.language, executor.folder
        compiler = executor.compiler()

        def work() -> None:
            try:
                with compiler:
                    for task, result in compiler.run(self._queue):
                        self._box.put(Compiled(key_of(task), result, self._packed(result)))
            except BaseException as error:
                self._box.put(error)

        self._thread = threading.Thread(target=work, daemon=True)
        self._thread.start()

    def _packed(self, result: CompileResult) -> tuple[Artifact, ...]:
        if result.status != Status.OK:
            return ()
        return tuple(self._language.pack(self._folder.cache, entry) for entry in result.entries)

    def submit(self, tasks: Iterable[CompileTask], scripts: Iterable[ScriptText]) -> None:
        write_scripts(scripts, self._folder.scripts)
        self._queue.submit(tasks)

    def news(self, wait_s: float) -> list[Compiled]:
        """What was compiled since the last call; waits so long for something. Raises EnvironmentFault when nothing can
        be compiled here."""
        messages = self._box.take(wait_s)
        for message in messages:
            if isinstance(message, BaseException):
                raise EnvironmentFault(f"cannot compile: {message}", where=os.uname().nodename)
        return messages

    def close(self) -> None:
        self._queue.close()
        self._thread.join()
        self._stack.close()

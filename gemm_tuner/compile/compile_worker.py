"""One compile worker: a process that compiles what it is given until the tuner is through with it; no GPU."""

from __future__ import annotations

import os
import signal
from typing import Any

import multiprocess

from gemm_tuner.core.language import language_of
from gemm_tuner.core.records import Target
from gemm_tuner.core.workload import workload_of
from gemm_tuner.system import memory
from gemm_tuner.system.guarded import die_with_parent

NICENESS = 10


def serve(
    connection: Any,
    language_name: str,
    target: Target,
    variables: dict[str, str],
    argument: str,
    log_path: str,
    scripts_dir: str,
    memory_bytes: int,
    kind: str,
) -> None:
    """Answers CompileTasks with CompileResults until the parent closes the pipe or sends None.

    argument: the language's ``worker_argument``. memory_bytes: what a compile may take beside what the worker has at
    its start. A text for an answer says that nothing can be written here. scripts_dir: holds the files of the tasks'
    scripts. kind: of problems, whose workload prepares the worker, too; "" for none.
    """
    parent = multiprocess.parent_process()
    own_process_group(parent.pid if parent else os.getppid())
    language = language_of(language_name)
    for name in language.removed_variables:
        os.environ.pop(name, None)
    os.environ.update(variables)
    log = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    language.start_worker(target, argument)
    if kind:
        workload_of(kind).start_worker()
    memory.limit(memory_bytes)
    connection.send("ready")
    while True:
        try:
            task = connection.recv()
        except EOFError:
            return
        if task is None:
            return
        try:
            connection.send(language.compile(task, target, scripts_dir))
        except OSError as error:
            connection.send(f"compiled kernels cannot be written: {error}")


def own_process_group(starter: int) -> None:
    """A group of its own, so that a kill takes ptxas too; dies with its parent; leaves Ctrl-C to it.

    Nice, since what is timed meanwhile is launched by a process that must not wait for a core.
    """
    os.setsid()
    os.nice(NICENESS)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    die_with_parent(starter)

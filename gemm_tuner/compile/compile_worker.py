"""The main function of a compile worker process; it uses no GPU."""

from __future__ import annotations

import os
import signal
from typing import Any

from gemm_tuner.compile.fork_server import let_the_server_end
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
    environ: dict[str, str],
    argument: str,
    log_path: str,
    scripts_dir: str,
    memory_bytes: int,
    kind: str,
    finds: bool,
) -> None:
    """Receives CompileTasks and sends CompileResults until the parent closes the pipe or sends None.

    A text instead of a CompileResult means that the cache cannot be written, None that a kernel was not found.

    environ:      the whole environment.
    argument:     what the language's ``worker_argument`` returned.
    memory_bytes: memory that a compilation may use beyond the worker's size at the start.
    scripts_dir:  folder of the tasks' scripts.
    kind:         kind of problems, whose workload also prepares the worker; "" for none.
    finds:        kernels are looked for in the cache, without the compiler, and not compiled.
    """
    own_process_group()
    os.environ.clear()
    os.environ.update(environ)
    language = language_of(language_name)
    log = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    if not finds:
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
            connection.send((language.find if finds else language.compile)(task, target, scripts_dir))
        except OSError as error:
            connection.send(f"compiled kernels cannot be written: {error}")


def own_process_group() -> None:
    """Puts this process into its own group, so that a kill includes ptxas; makes it die with its parent, the tuner or
    the fork server that dies with the tuner, and ignore Ctrl-C.

    Its priority is lowered, because the tuner and the process that launches timed kernels meanwhile must not wait for a
    core. It stays in the tuner's session: where Linux shares cores among sessions first (autogroup, see sched(7)),
    priorities count within one, and a worker with a session of its own would get as much of a core as the tuner.
    """
    os.setpgid(0, 0)
    os.nice(NICENESS)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    die_with_parent(os.getppid())
    let_the_server_end()

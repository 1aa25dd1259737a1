"""Starts worker processes by forking a server that has imported the compiler: in 0.05 s in place of a second each.

The server is multiprocess's. It is a process of its own, so that nothing of the caller is copied: no threads, no GPU.
It ends when the caller does, however that ends, and its workers with it. Where no server can be had (a folder for
temporary files whose path is too long for a socket), workers are started as new processes.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import multiprocess
from multiprocess import forkserver, util
from multiprocess import process as process_module

from gemm_tuner.system import module_start
from gemm_tuner.system.installation import import_path

# What a worker's exit status is said to be when the server was killed, and the worker with it.
SERVER_DIED = 255
# Imported first: it takes the server out of the caller's process group.
GROUP_MODULE = "gemm_tuner.compile.own_group"
_starts = threading.Lock()


def started(target: Callable[..., None], arguments: Sequence[Any], modules: Sequence[str]) -> Any:
    """A running process that calls ``target(*arguments)``.

    modules: imported once, by the server; none: the process is no fork. Only what the first call asks for counts.
    """
    with _apart_from_the_users_folder():
        if modules:
            multiprocess.set_forkserver_preload([GROUP_MODULE, *modules])
            process = multiprocess.get_context("forkserver").Process(target=target, args=arguments, daemon=True)
            with contextlib.suppress(OSError, EOFError):
                process.start()
                return process
        process = multiprocess.get_context("spawn").Process(target=target, args=arguments, daemon=True)
        process.start()
        return process


def begin(modules: Sequence[str]) -> None:
    """Starts the server, which imports the modules while the caller goes on."""
    multiprocess.set_forkserver_preload([GROUP_MODULE, *modules])
    with _apart_from_the_users_folder(), contextlib.suppress(OSError):
        forkserver.ensure_running()


@contextlib.contextmanager
def _apart_from_the_users_folder() -> Iterator[None]:
    """Processes that multiprocess starts meanwhile find this package wherever it lies, and take no module from the
    working folder, where a random.py would stand before the standard library's.

    PYTHONPATH is set for new processes alone: another thread that reads os.environ would fail at what is deleted."""
    with _starts:
        flags, path = util._args_from_interpreter_flags, os.environ.get("PYTHONPATH")
        util._args_from_interpreter_flags = lambda: [*flags(), module_start.__file__]
        os.putenv("PYTHONPATH", import_path())
        try:
            yield
        finally:
            util._args_from_interpreter_flags = flags
            if path is None:
                os.unsetenv("PYTHONPATH")
            else:
                os.putenv("PYTHONPATH", path)


def disown(process: Any) -> None:
    """Lets this process end without that of ``started``, which multiprocess would wait for."""
    process_module._children.discard(process)


def let_the_server_end() -> None:
    """In a worker: the server ends when the caller is gone. Without this it would wait for its workers too, of which
    one may hang."""
    server = forkserver._forkserver
    if server._forkserver_alive_fd is not None:
        os.close(server._forkserver_alive_fd)
        server._forkserver_alive_fd = None

"""Starts worker processes by forking a server that has imported the compiler: in 0.05 s in place of a second each.

The server is multiprocess's. It is a process of its own, so that nothing of the caller is copied: no threads, no GPU.
It ends when the caller does, however that ends, and its workers with it; one that still imports, which nothing was
forked of, is killed where the caller ends as programs do. Where no server can be had (a folder for
temporary files whose path is too long for a socket), workers are started as new processes.

Compilers that must know at import what they compile for have servers of their own, one for each set of variables.

A server that still imports, for ten seconds on a slow machine, forks when it is through. Who must not wait so long asks
``is_ready`` before.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import multiprocess
from multiprocess import forkserver, util
from multiprocess import process as process_module

from gemm_tuner.system import module_start
from gemm_tuner.system.installation import import_path

# What a worker's exit status is said to be when the server was killed, and the worker with it.
SERVER_DIED = 255
# Imported first: they take the server out of the caller's process group, and let it end without a word.
SERVER_MODULES = ("gemm_tuner.compile.own_group", "gemm_tuner.compile.quick_end")
# Imported last, by its name alone: here it would be imported with what the server imports before. It makes this file.
READY_MODULE, READY_VARIABLE = "gemm_tuner.compile.server_ready", "GEMM_TUNER_FORK_SERVER_READY"
# After so long a server is said to be ready, so that whoever starts a process sees what is wrong with it.
LONGEST_IMPORT_S = 120.0
NO_VARIABLES: Mapping[str, str] = MappingProxyType({})
_starts, _files = threading.Lock(), threading.Lock()
_servers: dict[tuple[tuple[str, str], ...], forkserver.ForkServer] = {(): forkserver._forkserver}
_unused: dict[forkserver.ForkServer, int] = {}  # that forked no worker yet; the process that began them


@dataclass(frozen=True, slots=True)
class Import:
    """That of a server: when it began, monotonic seconds, and the file that is there when it is through."""

    began_s: float
    done: Path


_imports: dict[forkserver.ForkServer, Import] = {}  # of servers that this process started


def started(
    target: Callable[..., None],
    arguments: Sequence[Any],
    modules: Sequence[str],
    variables: Mapping[str, str] = NO_VARIABLES,
) -> Any:
    """A running process that calls ``target(*arguments)``.

    modules:   imported once, by the server; none: the process is no fork. Only what a server's first call asks for
               counts.
    variables: of the server's environment, beside the caller's.
    """
    if modules:
        server = _server(variables)
        with _starting(server, modules, variables), contextlib.suppress(OSError, EOFError), _forking(server):
            process = multiprocess.get_context("forkserver").Process(target=target, args=arguments, daemon=True)
            process.start()
            _unused.pop(server, None)
            return process
    with _environment(variables):
        process = multiprocess.get_context("spawn").Process(target=target, args=arguments, daemon=True)
        process.start()
        return process


def begin(modules: Sequence[str], variables: Mapping[str, str] = NO_VARIABLES) -> None:
    """Starts a server, which imports the modules while the caller goes on."""
    server = _server(variables)
    with _starting(server, modules, variables), contextlib.suppress(OSError):
        if server._forkserver_pid is None:
            _unused[server] = os.getpid()
        server.ensure_running()


def is_ready(modules: Sequence[str], variables: Mapping[str, str] = NO_VARIABLES) -> bool:
    """Whether ``started`` need not wait for what the server imports. Starts the server if there is none.

    It need not wait for a server that has ended, that something else started, or that imports for longer than
    LONGEST_IMPORT_S, either: then ``started`` finds out what is wrong.
    """
    if not modules:
        return True
    server = _server(variables)
    if server._forkserver_pid is None:
        begin(modules, variables)
    of_server, pid = _imports.get(server), server._forkserver_pid
    if of_server is None or pid is None or _has_ended(pid):
        return True
    return of_server.done.exists() or time.monotonic() - of_server.began_s > LONGEST_IMPORT_S


def _has_ended(pid: int) -> bool:
    """Whether a child has ended, without taking its exit status from whoever waits for it."""
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:  # of another process, or waited for
        return True


@contextlib.contextmanager
def _starting(server: forkserver.ForkServer, modules: Sequence[str], variables: Mapping[str, str]) -> Iterator[None]:
    """The server, if it is started meanwhile, imports these modules with these variables, and then makes a file."""
    with _files:
        if server not in _imports and server._forkserver_pid is None:
            with contextlib.suppress(OSError):  # no folder for temporary files
                done = Path(util.get_temp_dir(), f"imported-{os.getpid()}-{len(_imports)}")
                _imports[server] = Import(time.monotonic(), done)
        told = {READY_VARIABLE: str(_imports[server].done)} if server in _imports else {}
    with _environment({**variables, **told}):
        server.set_forkserver_preload([*SERVER_MODULES, *modules, READY_MODULE])
        yield


@atexit.register
def end_unused() -> None:
    """Kills the servers of this process that forked nothing: the import of a compiler takes seconds, in which they
    would not see that the caller is gone, and would keep its terminal or pipe."""
    for server, beginner in _unused.items():
        if beginner == os.getpid() and server._forkserver_pid is not None:
            with contextlib.suppress(OSError):
                os.kill(server._forkserver_pid, signal.SIGKILL)


def _server(variables: Mapping[str, str]) -> forkserver.ForkServer:
    """That of these variables; multiprocess's only one without any."""
    return _servers.setdefault(tuple(sorted(variables.items())), forkserver.ForkServer())


@contextlib.contextmanager
def _forking(server: forkserver.ForkServer) -> Iterator[None]:
    """Processes that multiprocess starts meanwhile are forks of this server."""
    ordinary = forkserver.connect_to_new_process
    forkserver.connect_to_new_process = server.connect_to_new_process
    try:
        yield
    finally:
        forkserver.connect_to_new_process = ordinary


@contextlib.contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Processes that multiprocess starts meanwhile find this package wherever it lies, and take no module from the
    working folder, where a random.py would stand before the standard library's. They have these variables.

    Variables are set for new processes alone: another thread that reads os.environ would fail at what is deleted."""
    with _starts:
        flags, given = util._args_from_interpreter_flags, {**variables, "PYTHONPATH": import_path()}
        util._args_from_interpreter_flags = lambda: [*flags(), module_start.__file__]
        for name, value in given.items():
            os.putenv(name, value)
        try:
            yield
        finally:
            util._args_from_interpreter_flags = flags
            for name in given:
                if (before := os.environ.get(name)) is None:
                    os.unsetenv(name)
                else:
                    os.putenv(name, before)


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

"""``python warm_server.py PID ROOM``: forks processes from one that has imported what they would; see warm_python.py.
Standard input is the socket where it is asked. It ends when PID does, and its children with it. ROOM: as many
characters as a child's command line may have."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import fcntl
import gc
import importlib
import io
import json
import os
import runpy
import selectors
import signal
import socket
import struct
import sys
import tempfile
import threading
import time
import types
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
import warm_python
from warm_python import LIGHT, READ_AT_START, ROOT, TRITON_WORKERS, WORKERS, Job

from gemm_tuner.system.guarded import die_with_parent

IMPORTED = (
    "pandas", "scipy.optimize", "scipy.special", "sklearn.ensemble", "torch", "torch._dynamo", "triton",
    "triton.language", "gemm_tuner.launch.main", "gemm_tuner.cli.main", "gemm_tuner.kernels.check",
    "gemm_tuner.gemm.check", "gemm_tuner.gemm.reference",
)  # fmt: skip
IMPORTED_LIGHT = (
    "pandas", "scipy.optimize", "scipy.special", "sklearn.ensemble", "gemm_tuner.cli.main", "gemm_tuner.pipeline.run",
)  # fmt: skip
IMPORTED_BY_WORKERS = (
    TRITON_WORKERS, "gemm_tuner.compile.compile_worker", "gemm_tuner.gemm.workload", "gemm_tuner.moe.workload",
    "gemm_tuner.kernels.workload", "multiprocess.forkserver", "multiprocess.resource_tracker", "multiprocess.spawn",
)  # fmt: skip
IMPORTED_OF = {LIGHT: IMPORTED_LIGHT, WORKERS: IMPORTED_BY_WORKERS}
MOST_FDS = 16
LARGEST = 1 << 20  # bytes of what a process asks for; the kernel sends no more than a fifth of that at once


@dataclass
class Child:
    """connection: to the process that asked for it. pidfd: readable when it has ended."""

    pid: int
    connection: socket.socket
    pidfd: int
    is_bound: bool
    is_wanted: bool = True
    has_ended: bool = False

    def closes(self) -> None:
        """Takes note that the process that asked has read the exit status, or is gone."""
        self.is_wanted = False
        if not self.has_ended and self.is_bound:
            os.kill(self.pid, signal.SIGKILL)
        self.is_reaped()

    def ends(self) -> None:
        """Tells the exit status. Until that is read, the process stays, as a child does that nobody has waited for."""
        self.has_ended = True
        ended = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        assert ended is not None
        status = ended.si_status << 8 if ended.si_code == os.CLD_EXITED else ended.si_status
        with contextlib.suppress(OSError):
            self.connection.sendall(struct.pack("!q", status))
        self.is_reaped()

    def is_reaped(self) -> None:
        if self.has_ended and not self.is_wanted:
            os.waitpid(self.pid, 0)
            self.connection.close()
            os.close(self.pidfd)


def serve(owner: int) -> Job:
    """Forks children, and returns in each of them."""
    for module in next((IMPORTED_OF[kind] for kind in IMPORTED_OF if kind in os.environ), IMPORTED):
        importlib.import_module(module)
    if WORKERS in os.environ:  # each child takes from its environment what Triton would read, and keeps torch out
        sys.modules.pop(TRITON_WORKERS)
        sys.modules.pop("torch")
    gc.collect()
    gc.freeze()  # else a child's collector copies all of it
    listening = socket.socket(fileno=os.dup(0))
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)
    events = selectors.DefaultSelector()
    events.register(listening, selectors.EVENT_READ)
    events.register(os.pidfd_open(owner), selectors.EVENT_READ, lambda: sys.exit(0))
    while True:
        for key, _ in events.select():
            if key.fileobj is listening:
                connection, _ = listening.accept()
                events.register(connection, selectors.EVENT_READ)  # it may not have said yet what it asks for
                continue
            events.unregister(key.fileobj)  # each is said once
            if key.data is not None:
                key.data()
            elif job := forked(key.fileobj, events):
                return job


def forked(connection: Any, events: selectors.BaseSelector) -> Job | None:
    """Forks the child that a process asks for. The job in the child, None in the server."""
    streams: list[int] = []
    server = os.getpid()
    pid = -1
    ready, becoming = os.pipe()
    try:
        job = read(connection, streams)
        pid = os.fork()
    except OSError:  # the process that asked was killed, or there is no room for one more
        connection.close()
    if pid == 0:
        die_with_parent(server)
        for key in list(events.get_map().values()):
            key.fileobj.close() if isinstance(key.fileobj, socket.socket) else os.close(key.fd)
        for opened in (events, connection):
            opened.close()
        os.close(ready)
        taken = [0, 1, 2, *job.fds]
        apart = fcntl.fcntl(becoming, fcntl.F_DUPFD_CLOEXEC, max(taken) + 1)
        os.close(becoming)
        take(streams, taken)
        start_as(job)
        os.close(apart)
        return job
    for fd in streams:
        os.close(fd)
    os.close(becoming)
    if pid > 0:
        os.read(ready, 1)  # until the child can be found by its session and its environment, or has ended
        child = Child(pid, connection, os.pidfd_open(pid), job.bound)
        with contextlib.suppress(OSError):  # as above: what closes then is said next
            connection.sendall(struct.pack("!q", pid))
        events.register(connection, selectors.EVENT_READ, child.closes)
        events.register(child.pidfd, selectors.EVENT_READ, child.ends)
    os.close(ready)
    return None


def read(connection: socket.socket, streams: list[int]) -> Job:
    """What a process asks for. streams: takes the three standard streams of the child. Raises OSError where the
    process ended before it had said it."""
    said, fds, _, _ = socket.recv_fds(connection, LARGEST, MOST_FDS)
    streams += fds
    if len(fds) < 3:
        raise OSError("the connection ended")
    return Job(**json.loads(said))


def take(opened: list[int], numbers: list[int]) -> None:
    """Gives what is opened these numbers."""
    apart = [fcntl.fcntl(fd, fcntl.F_DUPFD, max(numbers) + 1) for fd in opened]
    for fd in opened:
        os.close(fd)
    for fd, number in zip(apart, numbers, strict=True):
        os.dup2(fd, number)
        os.close(fd)


def start_as(job: Job) -> None:
    """Gives this child its session, folder, environment and command line."""
    if job.group == 0:
        os.setsid()
    else:
        try:
            os.setpgid(0, job.group)
        except PermissionError:  # of another session
            os.setpgid(0, 0)
    os.chdir(job.folder)
    if not can_be(job):
        os.execve(sys.executable, [sys.executable, *job.argv], job.env)
    for name in list(os.environ):
        del os.environ[name]
    ctypes.CDLL(None).clearenv()
    show([f"{name}={value}" for name, value in job.env.items()], (47, 48))
    show([sys.executable, *job.argv], (45, 46))
    os.environ.update(job.env)


def become(job: Job) -> None:
    """Does in this child what Python does for a command."""
    before, after = libraries()
    first, given = paths(job)
    sys.path[:] = [*first, *before, *given, *after]
    importlib.invalidate_caches()
    renew_streams()
    warm_python.install()
    warm_python.install_workers()
    forget()
    end_by(run(job.argv))


def paths(job: Job) -> tuple[list[str], list[str]]:
    """(the folder of the script, none with -P; PYTHONPATH), as they are to be in sys.path."""
    given = list(filter(None, job.env.get("PYTHONPATH", "").split(os.pathsep)))
    if job.kind == WORKERS:  # with -P
        return [], given
    first = job.folder if job.argv[0] in ("-m", "-c") else os.path.dirname(os.path.join(job.folder, job.argv[0]))
    return [first], given


def libraries() -> tuple[list[str], list[str]]:
    """What stands before PYTHONPATH, where a .pth file put it, and behind. This process has the folder of its script
    and ROOT as PYTHONPATH."""
    root = sys.path.index(str(ROOT), 1)
    return sys.path[1:root], sys.path[root + 1 :]


def can_be(job: Job) -> bool:
    """Whether a new process would import what this one has, and read the same at its start."""
    known = {name.partition(".")[0] for name in sys.modules} - {"__main__"}
    own = {str(ROOT), *(os.path.realpath(path) for some in libraries() for path in some)}
    looked_in = [path for some in paths(job) for path in some]
    at_start = {"sitecustomize", "usercustomize"}
    for path in looked_in:
        names = {name.partition(".")[0] for name in os.listdir(path)} if os.path.isdir(path) else set()
        if os.path.realpath(path) not in own and names & (known | at_start) - {"warm_python"}:
            return False

    def start(env: dict[str, str]) -> dict[str, str]:
        others = ("PYTHONPATH", warm_python.SET_BY_TORCH)
        return {name: env[name] for name in env if name.startswith(READ_AT_START) and name not in others}

    locales = filter(None, (job.env.get(name) for name in ("LC_ALL", "LC_CTYPE", "LANG")))
    is_utf8 = next(locales, "C").lower().endswith(("c", "posix", "utf-8", "utf8"))  # Python takes C for C.UTF-8
    is_ours = str(ROOT) in map(os.path.realpath, looked_in)
    # Scripts of this checkout that are not in its root put that on the path themselves.
    is_ours = is_ours or (job.argv[0] not in ("-m", "-c") and Path(job.argv[0]).resolve().is_relative_to(ROOT))
    return is_utf8 and is_ours and start(dict(os.environ)) == start(job.env)


def show(words: list[str], fields: tuple[int, int]) -> None:
    """Writes a command line or an environment to where /proc reads it. fields: of the first and last address, in
    /proc/self/stat behind the name."""
    stat = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    first, end = (int(stat[field]) for field in fields)
    text = b"".join(os.fsencode(word) + b"\0" for word in words)[: end - first]
    ctypes.memset(first, 0, end - first)
    ctypes.memmove(first, text, len(text))


def forget() -> None:
    """What libraries have from the environment, or by chance, since they were imported."""
    tempfile.tempdir = None
    time.tzset()
    numpy.random.seed()


def renew_streams() -> None:
    for name, mode, fd in (("stdin", "rb", 0), ("stdout", "wb", 1), ("stderr", "wb", 2)):
        before = getattr(sys, name)
        at_once = mode == "wb" and bool(os.environ.get("PYTHONUNBUFFERED"))
        raw: Any = os.fdopen(fd, mode, 0 if at_once else -1, closefd=False)
        by_lines = name == "stderr" or os.isatty(fd)
        new = io.TextIOWrapper(raw, before.encoding, before.errors, None, by_lines, at_once)
        setattr(sys, name, new)
        setattr(sys, f"__{name}__", new)


def run(argv: list[str]) -> int:
    """The exit status of ``python ARGV``; minus the number of the signal that ends it."""
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    vars(main)["__builtins__"] = __builtins__
    try:
        if argv[0] == "-m":
            sys.modules.pop(argv[1], None)
            sys.argv[:] = argv[1:]
            runpy._run_module_as_main(argv[1])  # type: ignore[attr-defined]
        elif argv[0] == "-c":
            sys.argv[:] = argv[:1]
            exec(argv[1], vars(main))
        else:
            sys.argv[:] = argv
            vars(main).update(__file__=argv[0], __spec__=None)
            exec(compile(Path(argv[0]).read_bytes(), argv[0], "exec"), vars(main))
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
        return -signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1
    return 0


def end_by(status: int) -> None:
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    if status < 0:
        signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status & 255)


if __name__ == "__main__":
    become(serve(int(sys.argv[1])))

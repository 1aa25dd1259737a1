"""Python processes that begin with torch, Triton and pandas imported, in place of three seconds of CPU time each.

``start`` lets ``subprocess.Popen`` ask a server (warm_server.py) to fork what would run ``python FILE ...`` or
``python -m gemm_tuner...``, also behind ``guarded.py``, or a worker of xdist, and does the same in the children.
``install_workers`` does so for what multiprocess starts besides them: the server of compile workers and its tracker. A
child is a process as any other: its own memory, environment, folder, standard streams, session, exit status and
signals, and /proc shows its command line and environment. What is left out is the start of the interpreter, these
imports, and taking them apart at the end. All else is started as ever. ``make test-all`` leaves nothing out.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import selectors
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
GUARDED = str(ROOT / "gemm_tuner" / "system" / "guarded.py")
# "PID:PATH": the process that servers end with, and the folder of their sockets.
FOLDER, INTERPRET = "WARM_PYTHON_FOLDER", "TRITON_INTERPRET"
# "1": a child begins with neither torch nor Triton, where stand-ins take their places.
LIGHT = "WARM_PYTHON_LIGHT"
# The server that has what compile workers import: Triton without torch.
WORKERS = "WARM_PYTHON_WORKERS"
# The variable that asks for a server, by being "1". The file that says in what state they began.
KINDS, STATE = ("", LIGHT, INTERPRET, WORKERS), "state"
# How xdist starts a worker.
XDIST = ["-u", "-c", "import sys;exec(eval(sys.stdin.readline()))"]
# What multiprocess runs with -c, and a module that its server of workers imports first.
MULTIPROCESS, TRITON_WORKERS = "from multiprocess.{} import main", "gemm_tuner.languages.triton.worker_imports"
# Variables that begin with these are read when Python or a library starts. The path is set anew for each process.
READ_AT_START = ("PYTHON", "LD_", "OMP_", "MKL_", "OPENBLAS_", "TORCH", "PYTORCH", INTERPRET)
# torch reads it when it compiles, and sets it itself: without this, no child of a test that comes after would be warm.
SET_BY_TORCH = "TORCHINDUCTOR_CACHE_DIR"
ROOM = 4096, 65536  # bytes for the command line and the environment of a child; what takes more starts cold
PYTHON = sys.executable
Cold: Any = subprocess.Popen


class Job(NamedTuple):  # no dataclass, which takes longer to import than the rest: stand-ins for nsys do so each
    """What a child is to be. argv: from the file or -m on. group: its process group; 0 for a session of its own.
    bound: whether it dies with the process that asked for it. fds: beside the standard streams, as numbered here and
    there."""

    argv: list[str]
    env: dict[str, str]
    folder: str
    group: int
    bound: bool
    fds: Sequence[int] = ()

    @property
    def kind(self) -> str:
        """Of the server that forks it."""
        if self.argv[0] == "-c" and self.argv[1] != XDIST[-1]:
            return WORKERS
        return next((name for name in (LIGHT, INTERPRET) if self.env.get(name) == "1"), "")

    @property
    def has_room(self) -> bool:
        """Whether /proc can show all of its command line and environment."""
        words = [PYTHON, *self.argv], [f"{name}={value}" for name, value in self.env.items()]
        return all(sum(len(os.fsencode(word)) + 1 for word in of) <= room for of, room in zip(words, ROOM, strict=True))

    def message(self) -> bytes:
        """All that a server reads, at once: a process that stops while it asks keeps no server waiting."""
        return json.dumps(self._asdict()).encode()


def start(folder: Path) -> None:
    """From here on, Popen starts warm processes where FOLDER is among the child's variables, as it is now in all.
    folder: of the servers' sockets; the servers end with this process."""
    os.environ[FOLDER] = started(folder)
    install()


def started(folder: Path) -> str:
    """Starts what begins servers in the state of this process, whoever asks for them later (warm_starter.py). Gives
    the value of FOLDER."""
    (folder / STATE).write_text(inherited())
    kept = {name for name in os.environ if name.startswith((*READ_AT_START, "PATH", "HOME", "LANG", "LC_"))}
    # Nothing that marks this process: it and its like are looked for, and killed, by that.
    env = {name: os.environ[name] for name in kept - {INTERPRET, LIGHT}}
    env |= {"PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": "", "ROOM": "x" * ROOM[1]}
    words = [PYTHON, str(Path(__file__).with_name("warm_starter.py")), str(os.getpid())]
    with contextlib.ExitStack() as opened:
        for kind in KINDS:
            listening = opened.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
            with address(folder / f"for{kind}") as name:
                listening.bind(name)
            listening.listen(128)
            listening.set_inheritable(True)
            words.append(f"{listening.fileno()}{kind}")
        silent = opened.enter_context(open(os.devnull, "r+"))
        log = opened.enter_context((folder / "log").open("w"))
        streams = [(os.POSIX_SPAWN_DUP2, file.fileno(), number) for number, file in enumerate((silent, log, log))]
        os.posix_spawn(PYTHON, words, env, file_actions=streams, setpgroup=0)
    return f"{os.getpid()}:{folder}"


def install() -> None:
    """Has Popen do so here, in a process that such a one started."""
    subprocess.Popen = WarmPopen  # type: ignore[misc]


def install_workers() -> None:
    """Has multiprocess do so here, where it asks for the server of Triton's compile workers, and for its tracker."""
    from ctypes import CDLL, c_char_p

    from multiprocess import forkserver, resource_tracker, util

    if isinstance(forkserver.os, Waiting):
        return
    forkserver.os = resource_tracker.os = waiting = Waiting()
    cold, getenv = util.spawnv_passfds, CDLL(None).getenv
    getenv.restype = c_char_p

    def spawn(path: str, args: list[str], fds: list[int]) -> int:
        *_, text = args
        is_tracker = text.startswith(MULTIPROCESS.format("resource_tracker"))
        is_server = text.startswith(MULTIPROCESS.format("forkserver")) and TRITON_WORKERS in text
        if FOLDER in os.environ and (is_tracker or is_server):
            # gemm_tuner puts the search path for what it starts, past os.environ.
            env = {**os.environ, "PYTHONPATH": os.fsdecode(getenv(b"PYTHONPATH") or b"")}
            job = Job(["-c", text], env, os.getcwd(), os.getpgrp(), False, [int(fd) for fd in fds])
            if found := forked(job, [0, 1, 2]):
                pid, waiting.servers[found[0]] = found
                return pid
        pid = cold(path, args, fds)
        return int(pid)

    util.spawnv_passfds = spawn


class Waiting:
    """The module ``os``, whose ``waitpid`` knows what servers forked. servers: what tells exit statuses, by process."""

    def __init__(self) -> None:
        self.servers: dict[int, socket.socket] = {}
        atexit.register(close, self.servers)

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def waitpid(self, pid: int, options: int) -> tuple[int, int]:
        if pid not in self.servers:
            return os.waitpid(pid, options)
        status = status_from(self.servers[pid], options)
        if status is None:
            return 0, 0
        self.servers.pop(pid).close()
        return pid, status


def close(servers: dict[int, socket.socket]) -> None:
    """Else the garbage collector does, and warns of it."""
    for server in servers.values():
        server.close()


def command_of(args: Any) -> tuple[list[str], bool] | None:
    """(what is behind ``python``, whether it was guarded); None for what is no warm process."""
    if not isinstance(args, (list, tuple)) or not all(isinstance(one, str) for one in args):
        return None
    words = list(args)
    if is_guarded := words[:4] == [PYTHON, "-I", "-S", GUARDED]:
        words = words[5:]
    if len(words) < 2 or words[0] != PYTHON:
        return None
    if words[1:] == XDIST:
        return XDIST[1:], is_guarded
    if words[1].endswith(".py") or (words[1] == "-m" and len(words) > 2 and words[2].startswith("gemm_tuner.")):
        return words[1:], is_guarded
    return None


class WarmPopen(Cold):  # type: ignore[misc]
    """Overrides what starts a process, and what waits for one without blocking, as CPython 3.10 to 3.14 have them."""

    _server: socket.socket | None = None
    _status: int | None = None

    def _execute_child(self, args: Any, *given: Any) -> None:
        executable, preexec_fn, _, pass_fds, cwd, env, _, _, shell = given[:9]
        p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite, _, gid, gids, uid, umask, new_session = given[9:21]
        group = given[21] if len(given) > 21 else -1
        is_plain = not (executable or preexec_fn or pass_fds or shell)
        command = command_of(args)
        if is_plain and command is not None and (gid, gids, uid, umask, group) == (None, None, None, -1, -1):
            variables = {os.fsdecode(k): os.fsdecode(v) for k, v in (os.environ if env is None else env).items()}
            of = 0 if new_session else os.getpgrp()
            job = Job(command[0], variables, os.path.abspath(cwd or "."), of, command[1])
            if FOLDER in variables and self._ask(job, (p2cread, c2pwrite, errwrite)):
                self._close_pipe_fds(p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite)
                self._child_created = True
                return
        super()._execute_child(args, *given)

    def _ask(self, job: Job, streams: tuple[int, ...]) -> bool:
        """Whether the server forked the child."""
        if (found := forked(job, [number if fd == -1 else fd for number, fd in enumerate(streams)])) is None:
            return False
        self.pid, self._server = found
        return True

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        if self._server is None:
            found: tuple[int, int] = super()._try_wait(wait_flags)
            return found
        if self._status is None:
            if (status := status_from(self._server, wait_flags)) is None:
                return 0, 0
            self._status = status
            self._server.close()
        return self.pid, self._status

    def _internal_poll(self, _deadstate: Any = None, **more: Any) -> int | None:
        if self._server is None:
            ended: int | None = super()._internal_poll(_deadstate, **more)
            return ended
        if self.returncode is None and self._waitpid_lock.acquire(False):
            try:
                pid, status = self._try_wait(os.WNOHANG) if self.returncode is None else (0, 0)
                if pid:
                    self._handle_exitstatus(status)
            finally:
                self._waitpid_lock.release()
        found: int | None = self.returncode
        return found


def forked(job: Job, streams: list[int]) -> tuple[int, socket.socket] | None:
    """The child, and what tells its exit status; None where there is none."""
    if (server := connected(job)) is None:
        return None
    try:
        socket.send_fds(server, [job.message()], [*streams, *job.fds])
        return number_from(server), server
    except OSError:  # it ended just now, or could not fork
        server.close()
        return None


def connected(job: Job) -> socket.socket | None:
    """A connection to the server for this job, which begins with the first; None where it is gone, or a child of it
    would not be as one of this process."""
    folder = Path(job.env[FOLDER].partition(":")[2])
    server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        if job.has_room and (folder / STATE).read_text() == inherited():
            with address(folder / f"for{job.kind}") as name:
                server.connect(name)
            return server
    except OSError:
        pass
    server.close()
    return None


def inherited() -> str:
    """What children take over from this process, besides what a job says: limits, umask, ignored signals, cores."""
    status = Path("/proc/self/status").read_text().splitlines()
    given = [line for line in status if line.startswith(("Umask:", "Cpus_allowed:"))]
    (ignored,) = (int(line.split()[1], 16) for line in status if line.startswith("SigIgn:"))
    ordinary = (1 << 31) - 1  # posix_spawn ignores two of the C library's own
    return "\n".join([*given, str(ignored & ordinary), Path("/proc/self/limits").read_text()])


@contextlib.contextmanager
def address(path: Path) -> Iterator[str]:
    """A name of a socket that is short, however long the path is: an address has room for 107 bytes."""
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def status_from(server: socket.socket, options: int) -> int | None:
    """What waitpid tells of a child that has ended; None while it has not, where the options say not to wait."""
    with selectors.DefaultSelector() as ready:
        ready.register(server, selectors.EVENT_READ)
        if not ready.select(0 if options & os.WNOHANG else None):
            return None
    with contextlib.suppress(OSError):
        return number_from(server)
    return 255 << 8  # of a server that died


def number_from(connection: socket.socket) -> int:
    """Raises OSError where the connection ends before."""
    if len(said := connection.recv(8)) < 8:
        raise OSError("the connection ended")
    return int(struct.unpack("!q", said)[0])

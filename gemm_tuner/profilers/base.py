"""The interface of a profiler: how to run a command under it, and how to read its output."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from gemm_tuner.core.errors import EnvironmentFault
from gemm_tuner.system.processes import guarded_command

if TYPE_CHECKING:
    import pandas as pd

TRACE_COLUMNS = ("kernel_name", "start_ns", "duration_ns", "scope", "process")
MAX_ROWS = 5_000_000  # about twenty times the rows of the largest profiler start
PLAIN_NUMBERS = {"LC_ALL": "C.UTF-8"}  # nsys and ncu format numbers by the locale, such as 239.008 for 239008
VERSION_TIMEOUT_S = 120
UNKNOWN_VERSION = "unknown"
SEE_LOG = "see the profiler's log beside the file"

# rocprof writes 'name.kd' and 'name(args) [clone .kd]', rocprofv2 'name(args) (.kd)'.
KERNEL_SUFFIX = re.compile(r" ?(\[clone \.kd\]|\(\.kd\)|\.kd)$")
VERSION_NUMBER = re.compile(r"\d+(?:\.\d+)+[\w.+-]*")

Trouble = Literal["missing", "empty", "unreadable"]


class TraceError(EnvironmentFault):
    """A profiler's output is missing, contains no kernel, or cannot be read without guessing.

    trouble: which of these; a caller may treat an empty trace as failed launches.
    """

    def __init__(self, what: str, *, trouble: Trouble = "unreadable", hint: str = SEE_LOG, **more: str) -> None:
        super().__init__(what, hint=hint, **more)
        self.trouble: Trouble = trouble


class NotRecorded(EnvironmentFault):
    """A profiler left nothing to convert, or nothing of what ran, although it ended well: as a rule not for the length
    of what it recorded."""


def written(path: Path, why: str) -> Path:
    """Returns ``path`` if it exists, else raises TraceError. why: when the tool does not write this output."""
    if not path.is_file():
        hint = f"{why}; {SEE_LOG}"
        raise TraceError("the profiler wrote no such file", trouble="missing", where=str(path), hint=hint)
    return path


def no_kernels(path: Path) -> TraceError:
    """The error for output that exists but lists no GPU kernel, including an empty file."""
    return TraceError("no kernels recorded", trouble="empty", where=str(path))


def unreadable(path: Path, line: int | None, what: str, *, accepted: str = "", hint: str = SEE_LOG) -> TraceError:
    """The error for output that cannot be understood. line: counted from 1."""
    where = str(path) if line is None else f"{path}, line {line}"
    return TraceError(what, where=where, accepted=accepted, hint=hint)


class Dispatch(NamedTuple):
    """One run of one GPU kernel.

    start_ns: an ordinal if the tool gives no start times.
    process:  PID of the launching process; "" if the tool does not give it.
    """

    kernel_name: str
    start_ns: int
    duration_ns: float
    scope: str = ""
    process: str = ""


def to_frame(path: Path, dispatches: Iterable[Dispatch]) -> pd.DataFrame:
    """Columns TRACE_COLUMNS (texts, int64, float64, texts, texts), sorted by start, name suffixes removed.

    Raises TraceError, naming ``path``, for no dispatch or more than MAX_ROWS.
    """
    import pandas as pd  # here, because the command line imports this module without needing pandas

    frame = pd.DataFrame(itertools.islice(dispatches, MAX_ROWS + 1), columns=list(TRACE_COLUMNS), dtype=object)
    refuse_number(path, len(frame))
    return in_time_order(frame)


def refuse_number(path: Path, kernels: int) -> None:
    """Raises TraceError, naming ``path``, for no kernel or more than MAX_ROWS."""
    if not kernels:
        raise no_kernels(path)
    if kernels > MAX_ROWS:
        raise unreadable(path, None, "the file lists too many kernels", accepted=f"up to {MAX_ROWS}")


def in_time_order(frame: pd.DataFrame) -> pd.DataFrame:
    """A table of TRACE_COLUMNS with their types, sorted by start, name suffixes removed. Texts are Python's, through
    which loops go ten times as fast as through pandas' own."""
    bare_names = {name: KERNEL_SUFFIX.sub("", name) for name in frame["kernel_name"].unique()}
    frame["kernel_name"] = frame["kernel_name"].map(bare_names)
    frame = frame.astype(dict(zip(TRACE_COLUMNS, (object, "int64", "float64", object, object), strict=True)))
    return frame.sort_values("start_ns", kind="stable", ignore_index=True)


class Profiler(ABC):
    """One tool that times kernels. The methods implement what most tools have in common.

    name:         its value of ``--profiler``, and its executable.
    backends:     backends of the kernels that it can time: ``cuda``, ``hip``, ``cpu``.
    install_hint: how to install the tool, for messages.
    uses_scopes:  the launcher must run each call in a proton scope ``L<number>``.
    uses_capture_range: the tool records only from cudaProfilerStart, which the launcher must call, to cudaProfilerStop
                  or the end of the process.
    runs_beside_others: several instances may run at once; one that waits for the GPU does not block another.
    uses_clock:   the launcher times the kernels itself.
    keeps_real_time: the tool does not delay kernels, and start_ns is their real start time.
    """

    name: str
    backends: tuple[str, ...]
    install_hint: str
    uses_scopes = False
    uses_capture_range = False
    uses_clock = False
    keeps_real_time = False
    runs_beside_others = False

    def supports(self, backend: str) -> bool:
        return backend in self.backends

    def version(self) -> str | None:
        """The tool's version; None if it is not installed or does not start. Never raises."""
        return tool_version(self.name)

    @abstractmethod
    def command(self, argv: list[str], out_dir: Path) -> list[str]:
        """The command line that runs ``argv`` under the tool, which writes only below ``out_dir``."""

    def whole_command(self, argv: list[str], out_dir: Path) -> list[str]:
        """``command`` for a program that does not mark a range to record."""
        return self.command(argv, out_dir)

    def export_commands(self, out_dir: Path) -> list[list[str]]:
        """Commands that convert the recording to what ``read`` reads, each of which is for those before it that fail;
        none if the tool needs none."""
        return []

    def has_recorded(self, out_dir: Path) -> bool:
        """Whether there is something for ``export_commands`` to convert."""
        return True

    @abstractmethod
    def read(self, out_dir: Path) -> pd.DataFrame:
        """The kernels that ran, a table with TRACE_COLUMNS. Raises TraceError."""

    def environment(self) -> dict[str, str]:
        """Additional environment variables for all commands."""
        return dict(PLAIN_NUMBERS)


def tool_version(tool: str) -> str | None:
    """The version number that ``tool --version`` prints, or 'unknown'; None if it is missing or does not start. The
    same executable is asked once: tools take up to seconds to say it."""
    executable = shutil.which(tool)
    if executable is None:
        return None
    try:
        found = os.stat(executable)
    except OSError:
        return None
    return _printed_version(executable, found.st_ino, found.st_size, found.st_mtime_ns)


@lru_cache(maxsize=64)
def _printed_version(executable: str, *what_it_is: int) -> str | None:
    """``tool_version`` of an executable."""
    try:
        done = subprocess.run(
            guarded_command([executable, "--version"]),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, **PLAIN_NUMBERS},
            timeout=VERSION_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    lines = done.stdout.decode("utf-8", errors="replace").splitlines()
    for line in sorted(lines, key=lambda text: "version" not in text.casefold()):
        found = VERSION_NUMBER.search(line)
        if found:
            return found.group()
    return UNKNOWN_VERSION if done.returncode == 0 else None

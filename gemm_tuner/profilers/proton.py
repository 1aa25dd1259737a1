"""Proton, the profiler that is part of Triton. Every timed call has a scope of its own in the trace."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec

from gemm_tuner.core.errors import UserError
from gemm_tuner.profilers.base import (
    UNKNOWN_VERSION,
    Dispatch,
    Profiler,
    to_frame,
    unreadable,
    written,
)
from gemm_tuner.system.input_files import read_text
from gemm_tuner.system.package_version import package_version

if TYPE_CHECKING:
    import pandas as pd

OUTPUT = "trace.chrome_trace"
KERNEL = "kernel"
SCOPE = re.compile(r"L[0-9]{1,18}")
MAX_TRACE_BYTES = 512 * 2**20
LAUNCH_METADATA = "__proton_launch_metadata"  # kernels that Triton runs to compute the metadata of a launch
FLAGS_WITH_A_VALUE = ("-X", "-W")
SHAPE = "traceEvents, with name, ts and dur (microseconds) of each kernel"

Microseconds = Annotated[float, msgspec.Meta(ge=0, lt=2**53)]


class Details(msgspec.Struct):
    """What proton notes of an event. call_stack: names from the outermost scope to the kernel."""

    call_stack: list[str] = []


class TraceEvent(msgspec.Struct):
    """An event of a trace, by Chrome's names."""

    cat: str = ""
    name: str = ""
    ts: Microseconds = 0.0
    dur: Microseconds = 0.0
    args: Details = msgspec.field(default_factory=Details)


class Trace(msgspec.Struct):
    """A line of a trace file."""

    traceEvents: list[TraceEvent]


DECODER = msgspec.json.Decoder(Trace)


class Proton(Profiler):
    name = "proton"
    backends = ("cuda", "hip")
    uses_scopes = True
    keeps_real_time = True
    runs_beside_others = True
    install_hint = "proton is part of Triton: pip install triton"

    def version(self) -> str | None:
        """Triton's version, from the installed files, because importing Triton is slow."""
        try:
            spec = find_spec("triton")
            folders = list(spec.submodule_search_locations or ()) if spec else []
            if not any((Path(folder) / "profiler" / "proton.py").is_file() for folder in folders):
                return None
            return package_version("triton") or UNKNOWN_VERSION
        except (ImportError, ValueError, OSError):
            return None

    def command(self, argv: list[str], out_dir: Path) -> list[str]:
        """As the base class says. argv: an interpreter, its flags, a script file and the script's arguments.

        Proton's command line (Triton 3.6 and 3.9) accepts a script path but not ``-m module``. The interpreter's flags
        come before proton's own ``-m``.
        """
        script = script_index(argv)
        profile = ["-m", "triton.profiler.proton", "-d", "trace", "-n", str(out_dir / "trace")]
        return [*argv[:script], *profile, *argv[script:]]

    def read(self, out_dir: Path) -> pd.DataFrame:
        return read_file(written(out_dir / OUTPUT, "proton writes it when the script has ended"))


def script_index(argv: list[str]) -> int:
    """The index of the script after the interpreter and its flags."""
    index = 1
    while index < len(argv) and argv[index].startswith("-"):
        if argv[index] in ("-m", "-c"):
            raise ValueError(f"proton runs a script file, not python {argv[index]}")
        index += 2 if argv[index] in FLAGS_WITH_A_VALUE else 1
    if index >= len(argv):
        raise ValueError("proton needs an interpreter and a script file")
    return index


def read_file(path: Path) -> pd.DataFrame:
    """Reads a .chrome_trace file: one JSON object per line, whose events of category "kernel" are the launches.

    The scope of a launch is the innermost one of proton's scopes ``L<number>`` on its call stack, "" without any.
    """
    try:
        text = read_text(path, "file", "JSON", MAX_TRACE_BYTES)
    except UserError as error:
        raise unreadable(path, None, error.what, accepted=SHAPE) from error
    lines = ((number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip())
    return to_frame(path, (dispatch for number, line in lines for dispatch in dispatches(path, number, line)))


def dispatches(path: Path, number: int, line: str) -> Iterator[Dispatch]:
    """The launches in a line of a trace file. number: of the line, from 1."""
    try:
        events = DECODER.decode(line).traceEvents
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise unreadable(path, number, f"the line is no part of proton's trace: {error}", accepted=SHAPE) from error
    for event in events:
        stack = event.args.call_stack
        if event.cat == KERNEL and LAUNCH_METADATA not in stack:
            if not event.name:
                raise unreadable(path, number, "a kernel has no name", accepted=SHAPE)
            scope = next((name for name in reversed(stack[:-1]) if SCOPE.fullmatch(name)), "")
            yield Dispatch(event.name, round(event.ts * 1000), event.dur * 1000, scope)

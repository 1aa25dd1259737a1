"""AMD rocprof (version 1, based on roctracer), and the similar table that rocprofv2 writes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from gemm_tuner.core.errors import EnvironmentFault
from gemm_tuner.profilers.base import Dispatch, Profiler, to_frame, written
from gemm_tuner.profilers.tables import Row, layout, read_rows, refuse_repeated

if TYPE_CHECKING:
    import pandas as pd

OUTPUT = "trace.csv"
DURATION = "durationns"
SHELL_CHARACTERS = frozenset("\"'$`\\")
PLUGIN_1 = "the rows of rocprofv2's file plugin version 1 lack sig and obj: use --plugin-version 2, or rocprofv3"
RENAMED = "the columns are neither rocprof's nor rocprofv2's: omniperf renames them so"
V1 = layout("KernelName", "BeginNs", "EndNs", short_row=PLUGIN_1)
V2 = layout("Dispatch_ID", "Kernel_Name", "Start_Timestamp", "End_Timestamp", "Correlation_ID")
LAYOUTS = (
    V1,
    V2,
    layout(
        "Name",
        "Calls",
        "TotalDurationNs",
        refusal="this is the sum over dispatches: use X.csv, not X.stats.csv",
    ),
    layout("Dispatch_ID", "Kernel_Name", "Start_Timestamp", refusal=RENAMED),
    layout("KernelName", "gpu-id", refusal="the file has no times: run rocprof with --stats"),
)


class Rocprof(Profiler):
    name = "rocprof"
    backends = ("hip",)
    install_hint = "rocprof ships with ROCm: put ROCm's bin folder on PATH"

    def command(self, argv: list[str], out_dir: Path) -> list[str]:
        """As the base class says. rocprof passes the command to a shell's ``eval``, so quotes and ``$`` are refused."""
        for argument in argv:
            if SHELL_CHARACTERS.intersection(argument):
                raise EnvironmentFault(
                    f"rocprof cannot pass on the argument {argument!r}",
                    accepted="arguments without quotes, backslashes and $",
                    hint="rename the file or folder, or use --profiler rocprofv3",
                )
        return ["rocprof", "--stats", "-o", str(out_dir / OUTPUT), *argv]

    def read(self, out_dir: Path) -> pd.DataFrame:
        return read_file(written(out_dir / OUTPUT, "rocprof writes none when no kernel ran"))


def read_file(path: Path) -> pd.DataFrame:
    """Reads the per-dispatch CSV of rocprof ``--stats`` and of rocprofv2's file plugin version 2."""
    return to_frame(path, refuse_repeated(dispatches(path)))


def dispatches(path: Path) -> Iterator[tuple[Row, Dispatch]]:
    for row in read_rows(path, LAYOUTS):
        start, end = ("beginns", "endns") if row.header.layout is V1 else ("starttimestamp", "endtimestamp")
        duration_ns = row.elapsed_ns(start, end)
        check_duration(row, duration_ns)
        name, start_ns, process = row.kernel_name("kernelname"), row.whole_number(start), row.process("pid")
        yield row, Dispatch(name, start_ns, float(duration_ns), process=process)


def check_duration(row: Row, elapsed_ns: int) -> None:
    """Raises TraceError unless DurationNs is EndNs - BeginNs, as in all real files; a difference means shifted
    fields."""
    if DURATION in row.header.columns and row.whole_number(DURATION) != elapsed_ns:
        raise row.error(
            f"DurationNs is {row.text(DURATION)}, but EndNs - BeginNs is {elapsed_ns}",
            accepted="equal values",
            hint="the row's fields are shifted, or the last one is cut",
        )

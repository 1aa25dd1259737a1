"""AMD rocprofv3 (rocprofiler-sdk): one CSV row per dispatch, not in the order of time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from gemm_tuner.profilers.base import Dispatch, Profiler, to_frame, written
from gemm_tuner.profilers.tables import Row, layout, read_rows, refuse_repeated
from gemm_tuner.system.documents import show

if TYPE_CHECKING:
    import pandas as pd

OUTPUT = "trace_kernel_trace.csv"
KERNEL = "KERNEL_DISPATCH"
START, END = "starttimestamp", "endtimestamp"
OF_A_DATABASE = "this is the view kernels of a rocpd database: convert the database with rocpd convert -f csv"
LAYOUTS = (
    layout("Kind", "Kernel_Name", "Start_Timestamp", "End_Timestamp"),
    layout("Counter_Name", "Kernel_Name", refusal="these are counters, a row each: use --kernel-trace"),
    layout("name", "start", "end", "duration", "dispatch_id", refusal=OF_A_DATABASE),
    layout("Name", "Calls", "TotalDurationNs", refusal="this is a sum over dispatches: use *_kernel_trace.csv"),
)


class Rocprofv3(Profiler):
    name = "rocprofv3"
    backends = ("hip",)
    keeps_real_time = True
    install_hint = "rocprofv3 ships with ROCm: put ROCm's bin folder on PATH"

    def command(self, argv: list[str], out_dir: Path) -> list[str]:
        """Requests CSV explicitly, because ROCm 7 writes a database (rocpd) by default."""
        output = ["--output-format", "csv", "-d", str(out_dir), "-o", "trace", "--log-level", "fatal"]
        return ["rocprofv3", "--kernel-trace", *output, "--", *argv]

    def read(self, out_dir: Path) -> pd.DataFrame:
        return read_file(written(out_dir / OUTPUT, "rocprofv3 writes none when no kernel ran"))


def read_file(path: Path) -> pd.DataFrame:
    """Reads ``*_kernel_trace.csv`` of ROCm 6 and 7, and the CSV that rocpd's conversion writes."""
    return to_frame(path, refuse_repeated(dispatches(path)))


def dispatches(path: Path) -> Iterator[tuple[Row, Dispatch]]:
    for row in read_rows(path, LAYOUTS):
        kind = row.text("kind")
        if kind != KERNEL:
            raise row.error(f"the column 'Kind' holds {show(kind)}", accepted=KERNEL)
        duration_ns = row.elapsed_ns(START, END)
        yield row, Dispatch(row.kernel_name("kernelname"), row.whole_number(START), float(duration_ns))

"""NVIDIA Nsight Systems: records launches with little overhead; ``nsys export`` or ``stats`` converts the recording."""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

from gemm_tuner.profilers import nsys_tables
from gemm_tuner.profilers.base import Dispatch, Profiler, to_frame, written
from gemm_tuner.profilers.plain_tables import PlainTable, read_plain
from gemm_tuner.profilers.tables import NANOSECONDS, Row, layout, read_rows, refuse_repeated
from gemm_tuner.system.documents import show

if TYPE_CHECKING:
    import pandas as pd

REPORT = "cuda_gpu_trace"
RECORDING = "trace.nsys-rep"
TABLES_FILE = "kernels.db"
OUTPUTS = (f"trace_{REPORT}.csv", "trace_gputrace.csv")  # the second name is that of versions until about 2022.4
GRID, STREAM = "grdx", "strm"
# Buffers of what is recorded are saved when the recording ends, not whenever one is full: two threads may save such in
# the wrong order, at which nsys 2023.4 gives the whole recording up ("Wrong event order has been detected"). It did so
# with 4 of 38 starts of two runs on two H100s (2026-11-26), and since with none of 41.
NEVER_MS = 24 * 60 * 60 * 1000  # nsys waits for no longer than the process lives
# As ``--timeunit nsec`` writes it.
IN_NANOSECONDS = PlainTable("Start (ns)", "Duration (ns)", "GrdX", "Strm", "Name")
DECIMAL = re.compile(r"[0-9]+\.[0-9]+")
LAYOUTS = (
    layout("Start", "Duration", "GrdX", "Name"),
    layout(
        "Total Time",
        "Instances",
        refusal=f"this is a sum over launches, not the trace: use the report {REPORT}",
    ),
    layout("RangeId", "Duration", refusal=f"these are NVTX ranges, not kernels: use the report {REPORT}"),
)


class Nsys(Profiler):
    name = "nsys"
    backends = ("cuda",)
    uses_capture_range = True
    runs_beside_others = True
    keeps_real_time = True
    install_hint = "install NVIDIA Nsight Systems and put nsys on PATH"

    def command(self, argv: list[str], out_dir: Path) -> list[str]:
        """Traces only CUDA, because sampling and context switches would add noise and size.

        Recorded is what follows the start that the launcher marks: nsys stops its import, with exit status 0, at the
        first runtime call that it does not know (nsys 2023.4 does not know one that cuBLAS 13 makes at its start).
        A launcher does not end the range: that takes nsys 2023.4 another 2 s.
        """
        return self._profile(["-c", "cudaProfilerApi", "--capture-range-end=stop"], argv, out_dir)

    def whole_command(self, argv: list[str], out_dir: Path) -> list[str]:
        return self._profile([], argv, out_dir)

    @staticmethod
    def _profile(capture: list[str], argv: list[str], out_dir: Path) -> list[str]:
        options = ["-t", "cuda", "-s", "none", "--cpuctxsw=none", f"--cuda-flush-interval={NEVER_MS}"]
        options += [*capture, "-f", "true"]
        return ["nsys", "profile", *options, "-o", str(out_dir / "trace"), *argv]

    def export_commands(self, out_dir: Path) -> list[list[str]]:
        """Of the tables with the kernels, by versions that can; else to CSV. The force options are needed because nsys
        otherwise reuses a stale database and skips an existing CSV."""
        stem, force, recording = out_dir / "trace", "--force-overwrite=true", str(out_dir / RECORDING)
        tables = ["-t", "sqlite", "-q", "true", f"--tables={','.join(nsys_tables.TABLES)}"]
        report = ["-r", REPORT, "--format", "csv", "--timeunit", "nsec", "--force-export=true"]
        return [
            ["nsys", "export", *tables, force, "-o", str(out_dir / TABLES_FILE), recording],
            ["nsys", "stats", "-q", *report, force, "-o", str(stem), recording],
        ]

    def has_recorded(self, out_dir: Path) -> bool:
        """2023.4 left none after two of 134 starts that ended with exit status 0 (an H200, 2026-11-26)."""
        return (out_dir / RECORDING).is_file()

    def read(self, out_dir: Path) -> pd.DataFrame:
        """The kernels; of the CSV where there is one, which is written only if the export of tables failed."""
        if not any((out_dir / name).is_file() for name in OUTPUTS) and (out_dir / TABLES_FILE).is_file():
            return nsys_tables.read_tables(out_dir / TABLES_FILE)
        path = next((out_dir / name for name in OUTPUTS if (out_dir / name).is_file()), out_dir / OUTPUTS[0])
        why = f"nsys stats ends with status 0 even when it knows no report {REPORT} (before 2023)"
        return read_file(written(path, why))


def read_file(path: Path) -> pd.DataFrame:
    """Reads the CSV of ``nsys stats`` from a file, or from console output with other text before it.

    A file in which every line is as expected is read by one expression, in a fifth of the time; any other is read field
    by field, which finds what can be read or raises TraceError for the line.
    """
    plain = read_plain(path, IN_NANOSECONDS)
    return to_frame(path, refuse_repeated(dispatches(path))) if plain is None else plain


def dispatches(path: Path) -> Iterator[tuple[Row, Dispatch]]:
    """The kernels, without copies and fills, which have no grid. The stream is parsed only to detect shifted rows."""
    for row in read_rows(path, LAYOUTS):
        if row.text(GRID):
            row.whole_number(GRID)
            if STREAM in row.header.columns:
                row.whole_number(STREAM)
            start_ns, duration_ns = (nanoseconds(row, column) for column in ("start", "duration"))
            yield row, Dispatch(row.kernel_name("name"), round(start_ns), float(duration_ns))


def nanoseconds(row: Row, column: str) -> int | Decimal:
    """A time in nanoseconds. The header has the unit, which depends on ``--timeunit``; nanoseconds are integers.

    A comma is refused, because it is the decimal point in some locales.
    """
    unit = row.header.unit(column)
    scale = NANOSECONDS.get(unit)
    if scale is None:
        raise row.error(f"the unit {show(unit)} of {show(row.title(column))} is not known", accepted="ns, us, ms, sec")
    value = row.text(column)
    if scale > 1 and DECIMAL.fullmatch(value):
        return Decimal(value) * scale
    return row.whole_number(column) * scale

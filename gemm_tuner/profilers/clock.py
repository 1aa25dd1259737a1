"""The "profiler" of CPU languages: the launcher times each call with the host's clock. It is unusable for GPU kernels,
of which it would only time the launch."""

from __future__ import annotations

import csv
import platform
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from gemm_tuner.launch.clock import CLOCK_FILE, CLOCK_HEADER
from gemm_tuner.profilers.base import Dispatch, Profiler, to_frame, unreadable, written

if TYPE_CHECKING:
    import pandas as pd


class Clock(Profiler):
    name = "clock"
    backends = ("cpu",)
    uses_clock = True
    install_hint = "clock is part of the tuner"

    def version(self) -> str | None:
        """Python's version, because time.perf_counter_ns is used."""
        return platform.python_version()

    def command(self, argv: list[str], out_dir: Path) -> list[str]:
        return argv

    def read(self, out_dir: Path) -> pd.DataFrame:
        path = written(out_dir / CLOCK_FILE, "the launcher writes it as kernels run")
        return to_frame(path, _dispatches(path))


def _dispatches(path: Path) -> Iterator[Dispatch]:
    """The rows of the file, without a last line that is incomplete after a crash."""
    lines = path.read_text(encoding="utf-8", errors="replace").split("\n")[:-1]
    if lines[:1] != [CLOCK_HEADER]:
        raise unreadable(path, 1, "the file is no trace of the clock", accepted=CLOCK_HEADER)
    for number, row in enumerate(csv.reader(lines[1:]), 2):
        try:
            name, start_ns, duration_ns = row
            if int(duration_ns) < 0:
                raise ValueError
            yield Dispatch(name, int(start_ns), float(duration_ns))
        except ValueError:
            raise unreadable(path, number, "the line is no kernel", accepted=CLOCK_HEADER) from None

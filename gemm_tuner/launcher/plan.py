"""The plan that a launcher process reads, and the journal that it leaves: plain JSON, no pickle."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TextIO

from gemm_tuner.records import GemmProblem

PLAN_FORMAT = 1
VENDOR = "torch.mm"
SCREEN, FINALS, VERIFY = "screen", "finals", "verify"
# Kernels of the measurement itself, in the trace by these names: round a vendor call, and before every timed call.
BEGIN_SYMBOL = "gemm_tuner_vendor_begin"
END_SYMBOL = "gemm_tuner_vendor_end"
FLUSH_SYMBOL = "gemm_tuner_flush_l2"


@dataclass(frozen=True, slots=True)
class Method:
    """How calls are timed; part of what makes two timings comparable.

    warmup_calls, timed_calls: of each configuration; in finals, rounds over all of a size.
    early_stop_ratio:          a screened configuration whose first timed call takes longer than this
                               times the best so far is not timed further.
    flush_bytes:               L2 is emptied before each timed call by reading this much; 0 is never.
    rotating_bytes:            operands are rotated through copies of this much in all; 0 is one copy. Where the
                               copies hold flush_bytes or more, rotating takes the flush's place.
    """

    warmup_calls: int = 1
    timed_calls: int = 5
    early_stop_ratio: float = 3.0
    flush_bytes: int = 0
    rotating_bytes: int = 0
    init_type: str = "randn"
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Work:
    """The configurations of one problem that a launcher runs; ``script`` indexes Plan.scripts."""

    problem: GemmProblem
    entries: tuple[tuple[int, str], ...]
    vendor: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """One launcher process.

    scopes:              each call runs in a proton scope of its own.
    capture_range:       the profiler records between cudaProfilerStart and cudaProfilerStop only.
    stop_at_first_right: verify best first and stop at the first right one.
    """

    stage: str
    scripts: tuple[str, ...]
    work: tuple[Work, ...]
    method: Method
    device: str = "cuda"
    scopes: bool = False
    capture_range: bool = False
    stop_at_first_right: bool = True

    def write(self, path: Path) -> None:
        work = [{"problem": w.problem.to_dict(), "entries": w.entries, "vendor": w.vendor} for w in self.work]
        row = {**asdict(self), "work": work, "format": PLAN_FORMAT}
        path.write_text(json.dumps(row, indent=1) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> Plan:
        """Raises ValueError for another format."""
        row = json.loads(path.read_text(encoding="utf-8"))
        if row.pop("format", None) != PLAN_FORMAT:
            raise ValueError(f"{path} is no plan of format {PLAN_FORMAT}")
        work = tuple(
            Work(GemmProblem.from_dict(w["problem"]), tuple((s, n) for s, n in w["entries"]), w["vendor"])
            for w in row["work"]
        )
        scripts = tuple(row["scripts"])
        return cls(**{**row, "work": work, "scripts": scripts, "method": Method(**row["method"])})


class Journal:
    """One JSON object a line. ``begin`` and ``end`` reach the disk at once: a crash blames one config."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, event: str, *, now: bool = True, **fields: Any) -> None:
        self._stream.write(json.dumps({"event": event, **fields}) + "\n")
        if now:
            self._stream.flush()


def read_journal(path: Path) -> list[dict[str, Any]]:
    """The events in order; a last line that a crash cut short is left out."""
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").split("\n")
    return [json.loads(line) for line in lines[:-1]]

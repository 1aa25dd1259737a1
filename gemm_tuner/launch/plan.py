"""The plan that a launcher process executes, as a JSON file."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from gemm_tuner.core.errors import UserError
from gemm_tuner.core.records import Problem
from gemm_tuner.system.documents import show
from gemm_tuner.system.input_files import printable
from gemm_tuner.system.json_records import Above0, Count, Finite, Int, Positive, load_json, record_of

# Pause between the finals of two sizes. A size that reaches the power limit makes the GPU lower its clocks, so without
# a pause a size's times depend on the previous size: by up to 13 % after 60 to 400 ms of 8192^3, and after 0.1 s by at
# most 0.4 % more than after 0.3 s (benchmarks/rest.py, one H100, 2026-11-25).
REST_S = 0.1
# The pause is made after finals whose calls take longer than this in their shortest round, with L2 flush and launch.
TIRING_CALL_US = 150.0
PLAN_FORMAT = 1
VENDOR = "torch.mm"
# Name of the duplicate of a finalist in the finals (A/A test); the two differ only by noise.
AA_TEST = "A/A"
# Name of a configuration's calls between others of its size: while clocks stay, they all take the same time.
REFERENCE = "reference"
# What a launcher that waits for the path of a plan does for another one at a line of this word and its path: it loads
# its scripts, and opens the GPU.
LOAD, OPEN = "load", "open"
# Files in its folder: it has done that.
LOADED_FILE, OPENED_FILE = "loaded", "opened"
# A file of this name in the plan's folder makes the launcher end after the current configuration.
STOP_FILE = "stop"
# Exit status of a launcher that cannot write its journal; EX_IOERR of sysexits.h.
EXIT_CANNOT_WRITE = 74
SCREEN, FINALS, VERIFY = STAGES = ("screen", "finals", "verify")
# When a launcher has its turn: as it comes, before those BEHIND that wait, behind those AHEAD that have started.
PLACES = ANYWHERE, AHEAD, BEHIND = ("", "ahead", "behind")
DEVICES = ("cuda", "cpu")


@dataclass(frozen=True, slots=True)
class Method:
    """How calls are timed. Times are comparable only if their methods are equal.

    warmup_calls, timed_calls: of each configuration; in finals, rounds over all of a size.
    early_stop_ratio:          a screened configuration whose first two timed calls both take longer than
                               this times the best so far is not timed further.
    flush_bytes:               L2 is emptied before each timed call by reading this much; 0 is never.
    reference_every:           between so many screened configurations the size's reference is called; 0 is never.
    rotating_bytes:            operands are rotated through copies of this much in all; 0 is one copy. Where the
                               copies hold flush_bytes or more, rotating takes the flush's place.
    """

    warmup_calls: Count = 1
    timed_calls: Positive = 5
    early_stop_ratio: Above0 = 3.0
    flush_bytes: Count = 0
    reference_every: Count = 0
    rotating_bytes: Count = 0
    init_type: str = "randn"
    seed: Count = 0


@dataclass(frozen=True, slots=True)
class Work:
    """The configurations of one problem that a launcher runs.

    entries: (index in Plan.scripts, name of the configuration).
    vendor:  the finals also time the vendor library's call.
    again:   the entry whose kernel the finals time a second time as AA_TEST; "" for none.
    rounds:  number of rounds of the finals; 0: the method's timed_calls.
    best_us: time of the best known configuration, for the early stop of screening; 0 if unknown.
    reference: the entry that was screened first, if any was; else the first of this work that is no loser serves.
    reference_us: its time when it was screened.
    """

    problem: Problem
    entries: tuple[tuple[Int, str], ...]
    vendor: bool = False
    again: str = ""
    rounds: Count = 0
    best_us: Finite = 0.0
    reference: tuple[tuple[Int, str], ...] = ()
    reference_us: Finite = 0.0


@dataclass(frozen=True, slots=True)
class Plan:
    """The work of one launcher process.

    scripts:             file names, without folders, in the folder of the script that is started.
    scopes:              each call gets its own proton scope.
    capture_range:       the profiler records only from cudaProfilerStart to the end of the process.
    clock:               the launcher times the kernels itself (launch/clock.py).
    stop_at_first_right: checks stop at the first correct configuration.
    process:             number of the finals process; it determines operand addresses and the order of calls.
    together:            the planned processes of these finals start together: those that choose come first.
    place:               one of PLACES.
    deadline:            Unix time after which no configuration and no round of finals begins; 0: none.
    """

    stage: str
    scripts: tuple[str, ...]
    work: tuple[Work, ...]
    method: Method
    device: str = "cuda"
    scopes: bool = False
    capture_range: bool = False
    clock: bool = False
    stop_at_first_right: bool = True
    deadline: Finite = 0.0
    process: Count = 0
    together: bool = False
    place: str = ANYWHERE

    def is_over(self) -> bool:
        """Whether the deadline has passed."""
        return 0 < self.deadline < time.time()

    def write(self, path: Path) -> None:
        row = {**asdict(self), "format": PLAN_FORMAT}
        for work, of in zip(row["work"], self.work, strict=True):
            work["problem"] = of.problem.to_dict()
        path.write_text(json.dumps(row, indent=1) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> Plan:
        """Reads and validates a plan, without executing anything. Raises UserError for an invalid one."""
        where, row = printable(path), load_json(path, "plan")
        if not isinstance(row, dict) or row.pop("format", None) != PLAN_FORMAT:
            raise UserError(f"is no plan of format {PLAN_FORMAT}", where=where)
        plan = record_of(cls, row, where)
        fault = plan.fault()
        if fault:
            raise UserError(fault, where=where)
        return plan

    def fault(self) -> str:
        """Why this plan cannot be executed; "" if it can."""
        for name, known in (("stage", STAGES), ("device", DEVICES), ("place", PLACES)):
            if getattr(self, name) not in known:
                return f"{name} is {show(getattr(self, name))} and none of {', '.join(known)}"
        for number, work in enumerate(self.work):
            for script, _ in (*work.entries, *work.reference):
                if not 0 <= script < len(self.scripts):
                    return f"work {number} names script {script} of {len(self.scripts)}"
        return ""

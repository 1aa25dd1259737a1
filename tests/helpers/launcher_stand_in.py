"""Takes a generated script's place: reads a plan, writes a journal as the launcher does, and notes the kernels that a
profiler would see in ``kernels.txt`` beside the plan. A configuration's name says how it behaves.

kills_...: the process dies at its first timed call     hangs_...: it never comes back
shot_...: as killed_..., in the rounds of finals
killed_...: somebody kills the process, the first time; killed_twice_...: and the second
fails_...: its launch raises, the rest goes on          sticky_...: its launch loses the GPU
late_...: kills the process in the rounds of finals     shy_...: there too, unless it is alone
wrong_...: it computes something else                   split_...: each of its calls has two kernels

STAND_IN_END: 'exit 1' after the journal is whole, 'half a line' of it and then exit; 'never' after it is whole.
STAND_IN_VENDOR: 'kills'.  STAND_IN_COMPILES: how many kernels the process compiled.
"""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import TextIO

from hang_clock import hang

from gemm_tuner.core.records import Status, Verdict
from gemm_tuner.launch.journal import Begin, Called, Compiles, End, Fail, Finished, Journal, Judged, Process, Round
from gemm_tuner.launch.plan import FINALS, VENDOR, VERIFY, Plan, Work
from gemm_tuner.launch.turn import Turn
from gemm_tuner.system.processes import identity

FLUSH, BEGIN, END = "gemm_tuner_flush_l2", "gemm_tuner_vendor_begin", "gemm_tuner_vendor_end"


def end_by(number: signal.Signals) -> None:
    os.kill(os.getpid(), number)


def die() -> None:
    end_by(signal.SIGSEGV)


def is_killed(name: str) -> None:
    """Somebody kills this process, unless that happened before, or twice."""
    for turn in range(2 if name.startswith("killed_twice") else 1):
        been = Path(os.environ["STAND_IN_NOTES"]) / f"{name}.{turn}"
        if not been.exists():
            been.touch()
            end_by(signal.SIGKILL)


class StandIn:
    def __init__(self, plan: Plan, journal: Journal, kernels: TextIO) -> None:
        self.plan, self.journal, self.kernels, self.number = plan, journal, kernels, 0

    def kernel(self, name: str, us: float) -> None:
        self.kernels.write(f"{us * 1000:.0f} {name}\n")
        self.kernels.flush()

    def time_all(self, index: int, work: Work) -> None:
        for place, (_, name) in enumerate(work.entries):
            self.journal.write(Begin(index, name))
            if name.startswith("fails"):
                self.journal.write(Fail(index, name, Status.LAUNCH_ERROR, "RuntimeError: no"))
                continue
            if name.startswith("sticky"):
                self.journal.write(Fail(index, name, Status.CRASHED, "illegal memory access"))
                sys.exit(75)
            for turn in range(self.plan.method.warmup_calls + self.plan.method.timed_calls):
                self.call(index, name, 10.0 * (place + 1) + turn, warm=turn < self.plan.method.warmup_calls)
            self.journal.write(End(index, name, name.startswith("slow")))
        if work.vendor:
            self.vendor(index)

    def finals(self, index: int, work: Work) -> None:
        for place, (_, name) in enumerate(work.entries):
            self.journal.write(Begin(index, name))
            self.call(index, name, 10.0 * (place + 1), warm=True)
        for turn in range(1, 1 + self.plan.method.timed_calls):
            self.journal.write(Round(index, turn))
            for place, (_, name) in enumerate(work.entries):
                if name.startswith("late") or (name.startswith("shy") and (len(work.entries) > 1 or work.vendor)):
                    die()
                if name.startswith("shot"):
                    is_killed(name)
                self.call(index, name, 10.0 * (place + 1) + turn, warm=False)
        for _, name in work.entries:
            self.journal.write(End(index, name, name.startswith("slow")))
        if work.vendor:
            self.vendor(index)

    def call(self, index: int, name: str, us: float, *, warm: bool) -> None:
        symbols = [name, "reduce"] if name.startswith("split") else [name]
        self.kernel(FLUSH, 40.0)
        for symbol in symbols:
            self.kernel(symbol, us)
        if name.startswith("prints"):
            print("printed", flush=True)
        if name.startswith("kills"):
            die()
        if name.startswith("killed"):
            is_killed(name)
        if name.startswith("hangs"):
            hang()
        self.journal.write(Called(self.number, index, name, tuple(symbols), warm))
        self.number += 1

    def vendor(self, index: int) -> None:
        self.journal.write(Begin(index, VENDOR))
        for name in (FLUSH, BEGIN, "cublas_gemm", END):
            self.kernel(name, 5.0)
        if os.environ.get("STAND_IN_VENDOR") == "kills":
            die()
        self.journal.write(Called(self.number, index, VENDOR, (), False))
        self.number += 1
        self.journal.write(End(index, VENDOR))

    def check(self, index: int, work: Work) -> None:
        for _, name in work.entries:
            self.journal.write(Begin(index, name))
            if name.startswith("kills"):
                die()
            if name.startswith("killed"):
                is_killed(name)
            if name.startswith("hangs"):
                hang()
            ok = not name.startswith("wrong")
            for problem in (work.problem, replace(work.problem, m=work.problem.m + 1)):
                verdict = Verdict(problem, name, ok, 0.0, 0.0, message="" if ok else "off")
                self.journal.write(Judged.of(index, verdict))
            self.journal.write(End(index, name))
            if ok and self.plan.stop_at_first_right:
                break


def main(path: Path, turn: Path | None) -> None:
    end = os.environ.get("STAND_IN_END")
    with (path.parent / "journal.jsonl").open("w") as stream, (path.parent / "kernels.txt").open("w") as kernels:
        journal = Journal(stream)
        journal.write(Process(identity(os.getpid())))
        if turn:
            Turn(turn, path.parent).take()
        stand_in = StandIn(Plan.read(path), journal, kernels)
        for index, work in enumerate(stand_in.plan.work):
            if stand_in.plan.stage == VERIFY:
                stand_in.check(index, work)
            elif stand_in.plan.stage == FINALS:
                stand_in.finals(index, work)
            else:
                stand_in.time_all(index, work)
        journal.write(Compiles(int(os.environ.get("STAND_IN_COMPILES", 0)), 3))
        if end == "half a line":
            stream.write('{"event": "fini')
            stream.flush()
            die()
        journal.write(Finished())
    if end == "never":
        hang()
    if end == "exit 1":
        print("the driver is not happy at exit", file=sys.stderr)
        sys.exit(1)


def run(arguments: list[str]) -> None:
    of = dict(zip(arguments[::2], map(Path, arguments[1::2]), strict=True))
    main(of["--plan"], of.get("--turn"))


if __name__ == "__main__":
    run(sys.argv[1:])

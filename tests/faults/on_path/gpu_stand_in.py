"""Takes the launcher's place in generated scripts: reads the plan, writes the journal as the launcher does, and notes
in ``kernels.txt`` beside the plan what a profiler would see. Times depend on the configuration's name alone.

STAND_IN_HOLD: a file; while it is there the last process of the finals waits, and says so in ``held`` beside it.
STAND_IN_FAULTS: "<part of a name>=<fault>,..."; faults are
hang   the kernel never ends (*)               segv   the launch kills the process
sticky the GPU context is lost               fails  the launch raises, the rest goes on
wrong  the check finds another result        racy   the check finds two results of one kernel
(*) In the folder HANG_NOTES, where there is one, a file says so: tests/helpers/hang_clock.py.
"""

from __future__ import annotations

import hashlib
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any, TextIO

from gemm_tuner.core.markers import BEGIN_SYMBOL, END_SYMBOL, FLUSH_SYMBOL
from gemm_tuner.core.records import Problem, Status, Verdict, Verified
from gemm_tuner.core.workload import workload_of
from gemm_tuner.launch.journal import Begin, Called, Compiles, End, Fail, Finished, Journal, Judged, Process, Round
from gemm_tuner.launch.plan import AA_TEST, STOP_FILE, VENDOR, VERIFY, Plan, Work
from gemm_tuner.system.processes import exit_with_tuner, identity

EXIT_STICKY = 75
# What launching takes, so that a run has a middle in which it can be killed.
CALL_S = 0.002
LAST_PROCESS = 2  # of 3, which short_tune_gemm.py asks for


def fault_of(name: str) -> str:
    pairs = (pair.split("=") for pair in os.environ.get("STAND_IN_FAULTS", "").split(",") if pair)
    return next((fault for part, fault in pairs if part in name), "")


def kernel_us(name: str) -> float:
    """5 to 55 us, another one for each name."""
    return 5.0 + int(hashlib.sha256(name.encode()).hexdigest()[:6], 16) % 50_000 / 1000


class StandIn:
    def __init__(self, plan: Plan, journal: Journal, kernels: TextIO, configs: dict[str, Any], stop: Path) -> None:
        self.plan, self.journal, self.kernels = plan, journal, kernels
        self.configs, self.stop, self.number = configs, stop, 0

    def ran(self, name: str, us: float) -> None:
        self.kernels.write(f"{us * 1000:.0f} {name}\n")
        self.kernels.flush()

    def call(self, index: int, name: str, turn: int) -> None:
        """Journals a call and its kernels: flush, then the configuration's own or the vendor's between markers."""
        us = kernel_us(self.plan.work[index].again if name == AA_TEST else name) + turn % 3 / 1000
        symbols = [] if name == VENDOR else [self.configs[self._config(index, name)]["binary"]]
        kernels = [BEGIN_SYMBOL, "cublas_gemm", END_SYMBOL] if name == VENDOR else symbols
        for kernel in (FLUSH_SYMBOL, *kernels):
            self.ran(kernel, us)
        time.sleep(CALL_S)
        fault = fault_of(name)
        if fault == "hang":
            if "HANG_NOTES" in os.environ:
                (Path(os.environ["HANG_NOTES"]) / f"{os.getpid()}").touch()
            time.sleep(3600)
        elif fault == "segv":
            os.kill(os.getpid(), signal.SIGSEGV)
        self.journal.write(Called(self.number, index, name, tuple(symbols), turn == 0))
        self.number += 1

    def _config(self, index: int, name: str) -> str:
        return self.plan.work[index].again if name == AA_TEST else name

    def refused(self, index: int, name: str) -> bool:
        """Whether a launch fails, which is journalled; a sticky error ends the process too."""
        fault = fault_of(name)
        if fault == "fails":
            self.journal.write(Fail(index, name, Status.LAUNCH_ERROR, "RuntimeError: no launch"))
        elif fault == "sticky":
            message = "RuntimeError: CUDA error: an illegal memory access was encountered"
            self.journal.write(Fail(index, name, Status.CRASHED, message))
            sys.exit(EXIT_STICKY)
        return bool(fault == "fails")

    def screen(self, index: int, work: Work) -> None:
        for _, name in work.entries:
            if self.stop.exists():
                return
            self.journal.write(Begin(index, name))
            if not self.refused(index, name):
                for turn in range(1 + self.plan.method.timed_calls):
                    self.call(index, name, turn)
                self.journal.write(End(index, name))

    def wait_while_held(self) -> None:
        hold = Path(os.environ.get("STAND_IN_HOLD", os.devnull))
        while hold.is_file() and self.plan.process == LAST_PROCESS:
            hold.with_name("held").touch()
            time.sleep(CALL_S)

    def finals(self, index: int, work: Work) -> None:
        self.wait_while_held()
        running = []
        for name in (
            *(name for _, name in work.entries),
            *filter(None, [work.again and AA_TEST, work.vendor and VENDOR]),
        ):
            self.journal.write(Begin(index, name))
            if not self.refused(index, name):
                self.call(index, name, 0)
                running.append(name)
        for turn in range(1, 1 + (work.rounds or self.plan.method.timed_calls)):
            self.journal.write(Round(index, turn))
            for name in running:
                self.call(index, name, turn)
        for name in running:
            self.journal.write(End(index, name))

    def verify(self, index: int, work: Work) -> None:
        for _, name in work.entries:
            if self.stop.exists():
                return
            self.journal.write(Begin(index, name))
            time.sleep(CALL_S)
            fault = fault_of(name)
            if fault == "segv check":
                os.kill(os.getpid(), signal.SIGSEGV)
            ok = fault not in ("wrong", "racy")
            sizes = workload_of(work.problem.kind).check_problems(
                work.problem, self.configs[name], descriptors=False, interpreted=False
            )
            for problem in sizes:
                message = {"wrong": "C[3, 5] is 7, the reference 8", "racy": "C[3, 5] is 7, then 8"}.get(fault, "")
                over_bound, stable = 0.5 if ok else 9.0, fault != "racy"
                how = Verified.FALSE if skips_check(work.problem) else None
                verdict = Verdict(problem, name, ok, 0.0, over_bound, (3, 5), message, stable, how)
                self.journal.write(Judged.of(index, verdict))
            self.journal.write(End(index, name))
            if ok and self.plan.stop_at_first_right:
                break


def skips_check(problem: Problem) -> bool:
    """Whether it is a user's kernel whose spec wants no check."""
    spec = getattr(problem, "spec", None)
    return spec is not None and spec.check.skip_check


def main(scripts_dir: str = "") -> int:
    """Runs the plan of the command line; the generated script is this process's main module."""
    exit_with_tuner()
    path = Path(sys.argv[sys.argv.index("--plan") + 1])
    configs = sys.modules["__main__"].__dict__["CONFIGS"]
    plan = Plan.read(path)
    assert len(plan.scripts) == 1, "it stands in for one script"
    with (path.parent / "journal.jsonl").open("w") as stream, (path.parent / "kernels.txt").open("w") as kernels:
        journal = Journal(stream)
        journal.write(Process(identity(os.getpid())))
        stand_in = StandIn(plan, journal, kernels, configs, path.parent / STOP_FILE)
        stage = {VERIFY: stand_in.verify, "screen": stand_in.screen}.get(plan.stage, stand_in.finals)
        for index, work in enumerate(plan.work):
            if not stand_in.stop.exists():
                stage(index, work)
        journal.write(Compiles(0, len(configs)))
        journal.write(Finished())
    return 0

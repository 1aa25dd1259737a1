"""Shows when each launcher of a run starts, uses its GPU and writes its report: the real pipeline on stand-in GPUs.

A stand-in sleeps for about what an H200 and nsys 2023.4 took, --speed times faster, and times by a table: this shows
what waits for what, and no time of a kernel. What the tuner itself does shows that many times too long.
`python benchmarks/schedule.py --gpus 2 --sizes 40`
"""

from __future__ import annotations

import argparse
import io
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "helpers")]

from rich.console import Console
from samples import config, problem
from tuning import StandInGpu, session, state_of

from gemm_tuner.launch.plan import SCREEN, VERIFY, Plan
from gemm_tuner.measure.launcher_events import OnEvent, ignore
from gemm_tuner.measure.retry import OnFound, StageRun
from gemm_tuner.pipeline.tune import Tuning

# Seconds: of the launcher that screens and lives on; of a launcher under nsys, with torch and the scripts; its report;
# context, operands and kernels; and for each thing that is timed or checked.
RESIDENT_START_S, NSYS_START_S, REPORT_S, CHECK_START_S, LOAD_S = 4.0, 4.6, 6.2, 3.3, 1.1
SCREENED_S, FINALIST_S, CHECKED_S = 0.006, 0.027, 0.2
CONFIGS = tuple(config(num_stages=stages, num_warps=warps) for stages in range(2, 9) for warps in (4, 8))


@dataclass
class Timeline:
    began: float = field(default_factory=time.monotonic)
    speed: float = 1.0
    lines: list[tuple[float, float, str]] = field(default_factory=list)

    @contextmanager
    def span(self, what: str, seconds: float) -> Iterator[None]:
        begun = time.monotonic()
        time.sleep(seconds / self.speed)
        yield
        ended = time.monotonic()
        self.lines.append(((begun - self.began) * self.speed, (ended - self.began) * self.speed, what))


@dataclass
class SlowGpu(StandInGpu):
    """Takes the time of an H200's launchers; several may be started at once, and use the GPU in turns."""

    number: int = 0
    timeline: Timeline = field(default_factory=Timeline)
    turn: threading.Lock = field(default_factory=threading.Lock)
    is_up: bool = False
    born: list[float] = field(default_factory=list)  # time.monotonic() of the launchers that wait for a plan

    def prepare(self) -> None:
        if not self.born:
            self.prepare_finals(1)

    def prepare_finals(self, count: int) -> None:
        self.born[:] = [*self.born, *[time.monotonic()] * max(0, count - len(self.born))][:count]

    def timings(self, plan: Plan, folder: Path, on_event: OnEvent = ignore, on_found: OnFound = ignore) -> StageRun:
        entries = sum(len(work.entries) + work.vendor + bool(work.again) for work in plan.work)
        gpu, span = f"GPU {self.number}", self.timeline.span
        if plan.stage == SCREEN:
            start_s, self.is_up = 0.0 if self.is_up else RESIDENT_START_S, True
            with span(f"{gpu} screen", start_s + entries * SCREENED_S):
                return super().timings(plan, folder, on_event, on_found)
        name = f"{gpu} finals {plan.process + 1}"
        started = self.born.pop(0) if self.born else time.monotonic()
        with span(f"{name}: start", max(0.0, NSYS_START_S - (time.monotonic() - started) * self.timeline.speed)):
            pass
        with self.turn, span(f"{name}:   on the GPU", LOAD_S + entries * FINALIST_S):
            run = super().timings(plan, folder, on_event, ignore)
        with span(f"{name}:     report", REPORT_S):
            pass
        on_found(run.timings)
        return run

    def verdicts(self, plan: Plan, folder: Path, on_event: OnEvent = ignore) -> None:
        assert plan.stage == VERIFY
        with self.timeline.span(f"GPU {self.number} check", CHECK_START_S + len(plan.work) * CHECKED_S):
            super().verdicts(plan, folder, on_event)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpus", type=int, default=1)
    parser.add_argument("--sizes", type=int, default=20)
    parser.add_argument("--speed", type=float, default=2.0)
    parser.add_argument(
        "--one_by_one", action="store_true", help="start a process of finals when the one before has ended"
    )
    arguments = parser.parse_args()
    sizes = [problem(512, 512, 64 + 64 * number) for number in range(arguments.sizes)]
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        one = session(Path(folder), *sizes, gpus=arguments.gpus, search="full", compile_stage=False)
        one.log.console = Console(file=io.StringIO())
        timeline = Timeline(speed=arguments.speed)
        us, overlaps = {CONFIGS[3].name: 50.0}, not arguments.one_by_one
        gpus = [
            SlowGpu(us=us, jitter=0.002, overlaps=overlaps, number=number, timeline=timeline)
            for number in range(arguments.gpus)
        ]
        Tuning(one, [state_of(size, CONFIGS) for size in sizes], gpus).run()
        os.chdir(ROOT)
    for begun, ended, what in sorted(timeline.lines):
        print(f"{begun:7.1f} to {ended:6.1f} s  {what}")
    last = max(ended for _, ended, _ in timeline.lines)
    busy = sum(ended - begun for begun, ended, what in timeline.lines if not what.endswith((": start", "report")))
    print(f"{last:.1f} s in all; the GPUs are in use for {100 * busy / (last * arguments.gpus):.0f} % of it")
    return 0


if __name__ == "__main__":
    sys.exit(main())

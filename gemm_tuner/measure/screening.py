"""Times screening apart from finals: in one process a GPU that lives over the rounds, or under another profiler."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from gemm_tuner.core.errors import CannotWrite, EnvironmentFault
from gemm_tuner.launch.plan import OPEN, SCREEN, Plan
from gemm_tuner.measure.launcher import Launcher, Timer
from gemm_tuner.measure.launcher_events import OnEvent, ignore
from gemm_tuner.measure.launcher_process import LiveLauncher
from gemm_tuner.measure.openings import Openings
from gemm_tuner.measure.retry import OnFound, StageRun, time_plan
from gemm_tuner.measure.supervise import follow
from gemm_tuner.measure.torch_ahead import TorchAhead
from gemm_tuner.profilers.proton import Proton
from gemm_tuner.system.installation import IMPORT_ROOT
from gemm_tuner.system.processes import Ended, Watched

# Configurations of one proton session, about, at most half as many more: what a crash of the process loses. A session
# takes 0.3 s beside its calls (H200), so that none is begun for a few that are left.
ABOUT_ENTRIES = 256
TICK_S = 0.05
# By its path: with -m, what lies in the user's folder would take the place of modules that it imports.
RESIDENT = IMPORT_ROOT / "gemm_tuner" / "launch" / "resident.py"


@dataclass
class Resident(Timer):
    """A launcher process that stays alive from plan to plan and times kernels itself, with proton (launch/resident.py).

    It is replaced when it crashes or hangs; as under an external profiler one configuration has then failed.
    torch_ahead: becomes the first process, if it still lives.
    _starter: starts the process, which the operating system ends with the thread that started it.
    _told_bytes: how much of the log belongs to plans that are over, or to processes that were.
    """

    live: LiveLauncher
    log_path: Path
    script: Path = RESIDENT
    torch_ahead: TorchAhead | None = None
    _process: Watched | None = None
    _told_bytes: int = 0
    _was_told_to_open: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _starter: ThreadPoolExecutor = field(default_factory=partial(ThreadPoolExecutor, 1))

    @property
    def stays(self) -> bool:
        return True

    def prepare(self) -> None:
        self._opened()

    def open_ahead(self, plans: Sequence[Plan], at_once: int, most: int | None = None) -> Openings:
        """As soon as it can: the first plan waits for that anyway."""
        path = self._opening
        with self._lock:
            if self._process is None or not self._process.alive:
                return Openings()
            if at_once > 0 and plans and not self._was_told_to_open:
                self._was_told_to_open = True
                self.live.placed(plans[0]).write(path)
                self._process.tell(f"{OPEN} {path}")
            return Openings(int(path.exists()), int(bool(plans) and not self._was_told_to_open))

    @property
    def _opening(self) -> Path:
        """The file that the process removes when it has opened the GPU."""
        return self.log_path.with_suffix(".opening.json")

    def cancel(self) -> None:
        self.live.cancel()

    def _opened(self) -> Watched:
        with self._lock:
            if self._process is None or not self._process.alive:
                live = self.live
                argv = [sys.executable, str(self.script), str(live.scripts_dir)]
                environment = live.environment() | Proton().environment()
                if self._process is None and self.log_path.exists():
                    self._told_bytes = self.log_path.stat().st_size
                self._opening.unlink(missing_ok=True)  # of one that died before
                if self._process is not None:
                    self._process.close_stdin()
                ahead = self.torch_ahead.become(argv[1:], environment, self.log_path) if self.torch_ahead else None
                self._process = ahead or self._starter.submit(Watched, argv, environment, self.log_path).result()
            return self._process

    def close(self) -> None:
        with self._lock:
            if self._process is not None:
                self._process.kill()
            self._process = None

    def timings(self, plan: Plan, folder: Path, on_event: OnEvent = ignore, on_found: OnFound = ignore) -> StageRun:
        """Raises EnvironmentFault when kernels cannot be timed in this way."""

        def start(part: Plan, where: Path) -> Ended:
            part.write(where / "plan.json")
            heartbeat, limit_s, finished = follow(where, on_event, self.live)
            process = self._opened()
            process.tell(str(where))
            done = False
            try:
                ended = process.wait(heartbeat, limit_s, finished, TICK_S)
                done = finished()
            finally:
                if not done:
                    self.close()
            printed = self.log_path.read_bytes()
            (where / "launcher.log").write_bytes(printed[self._told_bytes :])
            self._told_bytes = len(printed)
            return replace(ended, log_path=where / "launcher.log")

        live = self.live
        placed = live.placed(plan)
        run = time_plan(placed, Proton(), start, folder, on_found, live.wind_down, ABOUT_ENTRIES, on_event)
        return replace(run, starts=0)  # of profilers


@dataclass
class StagedLauncher(Launcher):
    """A GPU whose screening is timed in another way than its finals.

    fallback: times screening from the first plan on at which ``screening`` does not work here; None: that is a fault.
    say: called with a sentence when that happens.
    """

    screening: Timer
    finals: LiveLauncher
    say: Callable[[str], None]
    fallback: LiveLauncher | None = None
    _ahead: int = 0  # how many launchers of finals wait

    @property
    def overlaps(self) -> bool:
        return self.finals.overlaps

    @property
    def stays(self) -> bool:
        return self.screening.stays

    def prepare(self) -> None:
        self.screening.prepare()
        self.prepare_finals(max(1, self._ahead))  # the first process of the finals

    def prepare_finals(self, count: int) -> None:
        self._ahead = count
        self.finals.prepare_finals(count)

    def open_ahead(self, plans: Sequence[Plan], at_once: int, most: int | None = None) -> Openings:
        """Of screening first: what it needs is waited for soonest."""
        found = self.screening.open_ahead([plan for plan in plans if plan.stage == SCREEN], at_once)
        return found + self.finals.open_ahead(plans, at_once - found.now, most)

    def prepare_check(self) -> None:
        self.finals.prepare_check()

    def open_check(self, plan: Plan) -> None:
        self.finals.open_check(plan)

    def timings(self, plan: Plan, folder: Path, on_event: OnEvent = ignore, on_found: OnFound = ignore) -> StageRun:
        if plan.stage != SCREEN:
            self.screening.close()
            return self.finals.timings(plan, folder, on_event, on_found)
        try:
            return self.screening.timings(plan, folder, on_event, on_found)
        except CannotWrite:
            raise
        except EnvironmentFault as fault:
            self.screening.close()
            if self.fallback is None:
                raise
            name = self.fallback.profiler.name
            self.say(f"screening goes on under {name}, since it does not work in one process: {fault.one_line()}")
            self.screening, self.fallback = self.fallback, None
            again = folder.with_name(f"{folder.name}-again")
            return self.screening.timings(plan, again, on_event, on_found)

    def verdicts(self, plan: Plan, folder: Path, on_event: OnEvent = ignore) -> None:
        self.screening.close()
        self.finals.verdicts(plan, folder, on_event)

    def cancel(self) -> None:
        self.finals.cancel()
        self.screening.cancel()

    def close(self) -> None:
        self.screening.close()
        self.finals.close()

"""Launchers on this machine: one for a GPU under a profiler, and one for a language's interpreter."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from gemm_tuner.core.errors import EnvironmentFault
from gemm_tuner.core.language import Language
from gemm_tuner.launch.plan import FINALS, VERIFY, Plan
from gemm_tuner.measure import retry, supervise
from gemm_tuner.measure.device import visible_gpu
from gemm_tuner.measure.launcher import HostChecker, Launcher
from gemm_tuner.measure.launcher_events import OnEvent, ignore
from gemm_tuner.measure.openings import Openings
from gemm_tuner.measure.profiler_faults import profiler_failed
from gemm_tuner.measure.retry import OnFound, StageRun
from gemm_tuner.measure.starts_ahead import StartsAhead
from gemm_tuner.measure.supervise import Control, check_plan, watch
from gemm_tuner.profilers import Profiler
from gemm_tuner.system import carried_files
from gemm_tuner.system.installation import import_path
from gemm_tuner.system.processes import Ended

# Time limit of one configuration: its first launch, which may load the kernel, and a few calls.
LAUNCH_LIMIT_S = 60.0
# CUDA makes a context with so many queues for launches, 8 by default, of which a launcher, with one stream, needs one.
# Processes make them one after the other: ten take 1.05 s with 8 each and 0.35 with one (benchmarks/opening.py, two
# H200s, nsys 2023.4, 2026-11-27).
ONE_QUEUE = "CUDA_DEVICE_MAX_CONNECTIONS", "1"


@dataclass(frozen=True)
class LiveLauncher(Control, Launcher):
    """Launches on a GPU or the CPU of this machine. gpu: torch's id.

    backend:     of the target: "cuda", "hip" or "cpu".
    scripts_dir: folder of the scripts that plans name.
    turn:        a file that launchers lock while they use the GPU, so that several may be started at once; else None.
    ahead:       launchers that wait for a plan to time; None if they are started with it. checks_ahead: to check.
    """

    language: Language
    profiler: Profiler
    cache_dir: Path
    scripts_dir: Path
    backend: str
    gpu: int = 0
    launch_limit_s: float = field(default=LAUNCH_LIMIT_S, kw_only=True)
    turn: Path | None = field(default=None, kw_only=True)
    ahead: StartsAhead | None = field(default=None, kw_only=True)
    checks_ahead: StartsAhead | None = field(default=None, kw_only=True)

    @property
    def overlaps(self) -> bool:
        """Whether several threads may call ``timings`` at once; their launchers then take turns on the GPU."""
        return self.turn is not None

    def starting_ahead(self, folder: Path) -> LiveLauncher:
        """The same, with launchers that can be started ahead, with their files in ``folder``."""
        of = self.language.name, str(self.scripts_dir), "--device", self._device, *self._turn
        return replace(
            self,
            ahead=StartsAhead(self.profiler.command, self.environment, of, folder),
            checks_ahead=StartsAhead(lambda argv, _: argv, self.environment, of, folder / "checks"),
        )

    @property
    def _turn(self) -> list[str]:
        return ["--turn", str(self.turn)] if self.turn else []

    def prepare_finals(self, count: int) -> None:
        if self.ahead is not None:
            self.ahead.prepare(count)

    def open_ahead(self, plans: Sequence[Plan], at_once: int, most: int | None = None) -> Openings:
        found = Openings()
        for plan in plans:
            ahead = {FINALS: self.ahead, VERIFY: self.checks_ahead}.get(plan.stage)
            if ahead is not None:
                records = self.profiler.uses_capture_range and plan.stage == FINALS
                placed = replace(self.placed(plan), capture_range=records)
                found += ahead.open_some(placed, at_once - found.now, most)
        return found

    def prepare_check(self) -> None:
        if self.checks_ahead is not None:
            self.checks_ahead.prepare(1)

    def open_check(self, plan: Plan) -> None:
        if self.checks_ahead is not None:
            self.checks_ahead.open(self.placed(plan))

    def close(self) -> None:
        for ahead in filter(None, (self.ahead, self.checks_ahead)):
            ahead.prepare(0)

    @property
    def _device(self) -> str:
        return "cpu" if self.backend == "cpu" else "cuda"

    def environment(self) -> dict[str, str]:
        env = launcher_env(self.language, self.cache_dir, self.profiler.environment())
        if (carried := self.scripts_dir / carried_files.FOLDER).exists():
            env[carried_files.VARIABLE] = str(carried)
        if self.backend == "cpu":
            return env
        visible = "CUDA_VISIBLE_DEVICES" if self.backend == "cuda" else "ROCR_VISIBLE_DEVICES"
        env[visible] = visible_gpu(self.backend, self.gpu, os.environ)
        if self.backend == "cuda":
            env.setdefault(*ONE_QUEUE)
        if self.backend == "hip":  # proton refuses to start with these set
            for name in ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"):
                env.pop(name, None)
        return env

    def placed(self, plan: Plan) -> Plan:
        """The plan with the device of this launcher."""
        return replace(plan, device=self._device)

    def timings(self, plan: Plan, folder: Path, on_event: OnEvent = ignore, on_found: OnFound = ignore) -> StageRun:
        """Times the entries of the plan until its deadline.

        on_found: called with the timings of each profiler start before the next one begins.
        Raises EnvironmentFault if the profiler or the GPU fails as a whole.
        """

        starts = itertools.count()

        def start(part: Plan, where: Path) -> Ended:
            return self._profile(part, where, on_event, again=next(starts) > 0)

        placed = self.placed(plan)
        return retry.time_plan(placed, self.profiler, start, folder, on_found, self.wind_down, on_event=on_event)

    def _profile(self, plan: Plan, where: Path, on_event: OnEvent, *, again: bool) -> Ended:
        """Starts the profiler once; plan, journal, log and trace are in the folder ``where``. again: nobody has counted
        on this start."""
        plan.write(where / "plan.json")
        argv = [
            sys.executable,
            str(self.scripts_dir / plan.scripts[0]),
            "--plan",
            str(where / "plan.json"),
            *self._turn,
        ]
        command = self.profiler.command(argv, where)
        waiting = self.ahead.take(another=again) if self.ahead else None
        ended = watch(command, self.environment(), where, on_event, self, waiting)
        exports = self.profiler.export_commands(where) if (where / "journal.jsonl").exists() else []
        converted = None
        for export in exports:
            converted = supervise.export(export, self.environment(), where, self)
            if converted.exit_status == 0:
                break
        if converted is not None and converted.exit_status != 0 and ended.exit_status == 0:
            raise profiler_failed(self.profiler, converted, ended)
        return ended

    def verdicts(self, plan: Plan, folder: Path, on_event: OnEvent = ignore) -> None:
        """Checks the plan's entries. on_event: called with every journal event as it is written."""
        of = self.placed(plan), folder, self.scripts_dir, self.environment()
        check_plan(*of, on_event, self, self.checks_ahead.take() if self.checks_ahead else None, self._turn)

    def cancel(self) -> None:
        """Ends the running launchers; may be called from any thread. ``timings`` then raises KeyboardInterrupt."""
        self.stop.set()


def launcher_env(language: Language, cache_dir: Path, extra: Mapping[str, str]) -> dict[str, str]:
    """The environment of a launcher process: this process's, without variables that would change its kernels."""
    inherited = {name: value for name, value in os.environ.items() if name not in language.removed_variables}
    return {**inherited, **language.environment(cache_dir), "PYTHONPATH": import_path(inherited), **extra}


@dataclass(frozen=True)
class InterpreterLauncher(Control, HostChecker):
    """Checks kernels in their language's interpreter on the CPU. It cannot time kernels."""

    language: Language
    cache_dir: Path
    scripts_dir: Path
    _ahead: StartsAhead = field(init=False)

    def __post_init__(self) -> None:
        of, folder = (self.language.name, str(self.scripts_dir)), self.scripts_dir / "ahead"
        object.__setattr__(self, "_ahead", StartsAhead(lambda argv, _: argv, self._environment, of, folder))

    def prepare(self) -> None:
        """Lets the first process of the first plan import what takes seconds."""
        if self.language.interpreter_environment() is not None:
            self.language.require_interpreter()
            self._ahead.prepare(1)

    def close(self) -> None:
        self._ahead.prepare(0)

    def verdicts(self, plan: Plan, folder: Path, on_event: OnEvent = ignore) -> None:
        """Checks the plan's entries. Raises EnvironmentFault for a language without an interpreter."""
        of = replace(plan, device="cpu"), folder, self.scripts_dir, self._environment()
        check_plan(*of, on_event, self, self._ahead.take())

    def _environment(self) -> dict[str, str]:
        variables = self.language.interpreter_environment()
        if variables is None:
            raise EnvironmentFault(f"nothing here runs kernels of {self.language.name} for this architecture")
        self.language.require_interpreter()
        return launcher_env(self.language, self.cache_dir, variables)

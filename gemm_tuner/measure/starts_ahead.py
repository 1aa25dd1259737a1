"""Launchers that are started under a profiler before there is a plan for them.

The start of the profiler, of Python and of torch takes five seconds of which none needs the GPU. A launcher that was
started ahead has that behind it: it waits for the path of a plan, which it reads from a named pipe (a profiler need not
pass on its standard input).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from gemm_tuner.launch.plan import LOAD, LOADED_FILE, OPEN, OPENED_FILE, Plan
from gemm_tuner.launch.turn import WAITING_FILE
from gemm_tuner.measure.openings import Openings
from gemm_tuner.system.installation import IMPORT_ROOT
from gemm_tuner.system.processes import Ended, Watched

# By its path: with -m, what lies in the user's folder would take the place of modules that it imports.
WAITING = IMPORT_ROOT / "gemm_tuner" / "launch" / "waiting.py"
PIPE = "plan.pipe"
LOG = "launcher.log"
LOOK_EVERY_S = 0.05
LOADING, OPENING = "loading.json", "opening.json"


@dataclass
class Waiting:
    """A launcher that waits for a plan. folder: of its log and of what its profiler writes."""

    folder: Path
    process: Watched
    _pipe: int
    _told: list[Plan] = field(default_factory=list)

    @property
    def alive(self) -> bool:
        return self.process.alive

    @property
    def has_loaded(self) -> bool:
        """Whether it has done what ``load`` says."""
        return (self.folder / LOADED_FILE).exists()

    @property
    def was_told_to_open(self) -> bool:
        return bool(self._told)

    @property
    def is_opening(self) -> bool:
        return self.was_told_to_open and not (self.folder / OPENED_FILE).exists() and self.alive

    def run(
        self,
        plan: Path,
        heartbeat: Callable[[], object],
        limit_s: Callable[[], float],
        done: Callable[[], bool] | None = None,
    ) -> Ended:
        """Lets it execute a plan, and moves what was written into the plan's folder. An exception (Ctrl-C) kills the
        launcher and everything it started, and so does ``done``.

        heartbeat, limit_s, done: as of ``Watched.wait``. While it still waits to open the GPU (see ``open``), it is no
        stall.
        """

        def beat() -> object:
            beaten = heartbeat()
            return time.monotonic() if (self.folder / WAITING_FILE).exists() else beaten

        try:
            os.write(self._pipe, f"{plan}\n".encode())
            ended = self.process.wait(beat, limit_s, *((done, LOOK_EVERY_S) if done else ()))
        finally:
            self.close(plan.parent)
        return replace(ended, log_path=plan.parent / LOG)

    def load(self, plan: Plan) -> None:
        """Lets it load the scripts of a plan like this one, when it has imported what takes seconds."""
        path = self.folder / LOADING
        plan.write(path)
        os.write(self._pipe, f"{LOAD} {path}\n".encode())

    def open(self, plan: Plan) -> None:
        """Lets it open the GPU, once, for a plan like this one, which it does not execute; told of another plan, it
        reads that one's kernels."""
        if plan not in self._told:
            path = self.folder / (f"{len(self._told)}-{OPENING}" if self._told else OPENING)
            plan.write(path)
            os.write(self._pipe, f"{OPEN} {path}\n".encode())
            self._told.append(plan)

    def close(self, into: Path | None = None) -> None:
        """Kills it if it is still alive. into: the folder that its files are moved to, or None to delete them."""
        self.process.kill()
        os.close(self._pipe)
        (self.folder / PIPE).unlink()
        if into is not None:
            # The last of these would say that whoever has the plan next waits.
            for name in (LOADED_FILE, OPENED_FILE, WAITING_FILE):
                (self.folder / name).unlink(missing_ok=True)
            for path in list(self.folder.iterdir()):
                shutil.move(path, into / path.name)
        shutil.rmtree(self.folder)


@dataclass
class StartsAhead:
    """The launchers of one GPU that wait for a plan.

    command:     the command line of a profiler that runs a program and writes into a folder.
    environment: returns that of launchers.
    arguments:   of ``script``, which is ``launch/waiting.py``: the language, the folder of the scripts, and options.
    folder:      for the folders of the launchers.
    _example:    a plan with the scripts that they are to load; None while it is unknown.
    _starter:    starts the processes, which the operating system ends with the thread that started them.
    """

    command: Callable[[list[str], Path], list[str]]
    environment: Callable[[], Mapping[str, str]]
    arguments: tuple[str, ...]
    folder: Path
    script: Path = WAITING
    _waiting: list[Waiting] = field(default_factory=list)
    _example: Plan | None = None
    _number: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _starter: ThreadPoolExecutor = field(default_factory=partial(ThreadPoolExecutor, 1))

    def prepare(self, count: int) -> None:
        """Starts or ends as many that ``count`` wait. Where there are no named pipes, none does."""
        with self._lock, contextlib.suppress(OSError):
            while len(self._waiting) < count:
                self._waiting.append(self._starter.submit(self._start).result())
            while len(self._waiting) > count:
                self._waiting.pop().close()

    def open(self, plan: Plan) -> None:
        """Lets those that wait open the GPU, for a plan like this one."""
        with self._lock:
            for one in self._waiting:
                if one.alive:
                    one.open(plan)

    def open_some(self, plan: Plan, at_once: int, most: int | None = None) -> Openings:
        """Lets those that wait, and others from now on, load the scripts of a plan like this one. Those that have done
        so open the GPU, up to ``at_once`` at the same time, and no more than the ``most`` that have waited longest;
        unless ``at_once`` is 0, those that have opened it read the kernels of this plan."""
        with self._lock:
            if self._example is None:
                self._example = plan
                for one in self._waiting:
                    one.load(plan)
            alive = [one for one in self._waiting if one.alive][:most]
            left = [one for one in alive if not one.was_told_to_open]
            now = sum(one.is_opening for one in alive)
            for one in alive if at_once > 0 else ():
                if one.was_told_to_open and not one.is_opening:
                    one.open(plan)
            for one in [one for one in left if one.has_loaded][: max(0, at_once - now)]:
                one.open(plan)
                left.remove(one)
                now += 1
            return Openings(now, len(left))

    def take(self, *, another: bool = False) -> Waiting | None:
        """The one that has waited longest, if any still does. another: one more is started, for those who count on as
        many as wait."""
        with self._lock:
            if another and self._waiting:
                with contextlib.suppress(OSError):
                    self._waiting.append(self._starter.submit(self._start).result())
            while self._waiting:
                first = self._waiting.pop(0)
                if first.alive:
                    return first
                first.close()
        return None

    def _start(self) -> Waiting:
        where = self.folder / f"{self._number:02d}"
        self._number += 1
        self.folder.mkdir(parents=True, exist_ok=True)
        while where.exists():  # of a start that was killed
            self._number, where = self._number + 1, self.folder / f"{self._number:02d}"
        where.mkdir()
        os.mkfifo(where / PIPE)
        # Open for both: the launcher's end opens at once, and reads the end of the file when this process has ended.
        pipe = os.open(where / PIPE, os.O_RDWR | os.O_CLOEXEC)
        argv = [sys.executable, str(self.script), *self.arguments, "--pipe", str(where / PIPE)]
        try:
            process = Watched(self.command(argv, where), dict(self.environment()), where / LOG)
        except OSError:
            os.close(pipe)
            raise
        process.close_stdin()
        started = Waiting(where, process, pipe)
        if self._example is not None:
            try:
                started.load(self._example)
            except OSError:
                started.close()
                raise
        return started

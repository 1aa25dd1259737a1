"""The log of a run: messages and progress on the terminal, times of stages, counts and notes."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from rich.console import Console

from gemm_tuner.measure.launcher_events import Again, OnEvent, at_each_end
from gemm_tuner.measure.phases import added
from gemm_tuner.measure.retry import StageRun
from gemm_tuner.system import progress
from gemm_tuner.system.progress import Step
from gemm_tuner.system.terminal_table import print_line


@dataclass
class RunLog:
    """console: progress and messages, on standard error. out: results, on standard output.

    started:       time.monotonic() at the start.
    stage_seconds: wall time by stage. facts: counts by name. notes: other entries for run.json.
    began:         time.monotonic() from which on every moment belongs to a stage or to a part outside of them.
    outside_seconds: wall time of these parts.
    spans:         the first begin and the last end of each stage, of time.monotonic().
    """

    console: Console
    out: Console
    started: float = field(default_factory=time.monotonic)
    stage_seconds: dict[str, float] = field(default_factory=dict)
    facts: dict[str, int] = field(default_factory=dict)
    notes: dict[str, Any] = field(default_factory=dict)
    began: float = field(default_factory=time.monotonic)
    outside_seconds: dict[str, float] = field(default_factory=dict)
    spans: dict[str, tuple[float, float]] = field(default_factory=dict)
    _until: float = field(init=False)  # all before belongs to a stage or part
    _in_stages: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self._until = self.began

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Adds the wall time of the block to a stage, which a terminal shows (``progress.waiting``)."""
        with self._timed(name), progress.waiting(name, self.console):
            yield

    @contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        begun = time.monotonic()
        self._in_stages += 1
        try:
            yield
        finally:
            self._in_stages -= 1
            self.add_stage(name, begun)

    def add_stage(self, name: str, begun: float) -> None:
        """Adds the wall time since ``begun``, of time.monotonic(), to a stage. What passed between the last stage or
        part and that is a part of its own."""
        self.passed(f"before {name}", begun)
        now = time.monotonic()
        _add(self.stage_seconds, name, now - begun)
        self.spans[name] = (self.spans[name][0] if name in self.spans else begun, now)
        if not self._in_stages:
            self._until = now

    def passed(self, part: str, until: float | None = None) -> None:
        """Adds the wall time since the last stage or part to a part outside the stages; inside one it does nothing.

        until: of time.monotonic(); now, if not given.
        """
        if not self._in_stages:
            now = time.monotonic() if until is None else until
            _add(self.outside_seconds, part, now - self._until)
            self._until = now

    def between_s(self, first: str, last: str) -> float | None:
        """The time from the first begin of one stage to the last end of another; None if either has not run."""
        if first not in self.spans or last not in self.spans:
            return None
        return self.spans[last][1] - self.spans[first][0]

    @property
    def accounted_s(self) -> float:
        """The time from ``began`` to the end of the last stage or part."""
        return self._until - self.began

    @contextmanager
    def step(self, stage: str, total: int, title: str = "") -> Iterator[Step]:
        """A stage with a progress bar of ``total`` steps. title: of the bar, if not the stage's name."""
        with self._timed(stage), progress.step(title or stage, total, self.console) as step:
            yield step

    @contextmanager
    def waiting(self, title: str, total: int = 1) -> Iterator[Step]:
        """Shows a part outside the stages, while the block runs, on a terminal (``progress.waiting``)."""
        with progress.waiting(title, self.console, total) as step:
            yield step

    def followed(self, step: Step) -> OnEvent:
        """A callback for events of launchers that advances a step, and says what is timed again."""

        def again(event: Again) -> None:
            step.expect(event.count)
            if event.reason:
                self.say(event.reason)

        return at_each_end(step.advance, again)

    def count(self, fact: str, number: int) -> None:
        self.facts[fact] = self.facts.get(fact, 0) + number

    def count_run(self, run: StageRun, stage: str) -> None:
        """Adds the counts of one launcher's run of a stage, and the seconds of its phases."""
        self.count("profiler starts", run.starts)
        self.count("compiled under the profiler", run.compiled)
        if run.phased:
            noted = self.notes.setdefault("starts", {}).setdefault(stage, {"number": 0, "seconds": {}})
            noted["number"] += run.phased
            noted["seconds"] = added(noted["seconds"], run.phases)

    def note_noise(self, noise_pcts: Iterable[float | None]) -> None:
        """Records the noise floor: median and maximum of the sizes' A/A test differences."""
        known = [one for one in noise_pcts if one is not None]
        if known:
            self.notes["noise_pct"] = (round(median(known), 3), round(max(known), 3))

    def say(self, text: str) -> None:
        """Prints one line of progress."""
        print_line(self.console, text)


def _add(to: dict[str, float], name: str, seconds: float) -> None:
    to[name] = to.get(name, 0.0) + seconds

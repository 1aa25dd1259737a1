"""Progress: a bar on a terminal, a plain line on standard error every PLAIN_SECONDS in a pipe; what is waited for."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from rich.console import Console
from rich.errors import LiveError
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

PLAIN_SECONDS = 10.0
# A wait that ends sooner is not shown.
WAIT_SHOWN_S = 0.5
# Columns of a bar's line: the longest title, a time such as 0:01:30, and "left" with the blanks.
TITLE_WIDTH, TIME_WIDTH, OTHER_WIDTH = 18, 7, 9
LEAST_BAR, WIDEST_BAR = 5, 40


class Step:
    """The progress of one stage; call ``advance`` after each unit."""

    def __init__(self, title: str, total: int, bar: Progress | None) -> None:
        self.title, self.total, self.done, self._bar = title, total, 0, bar
        self._task = bar.add_task(title, total=total) if bar else None
        self._started = self._said = time.monotonic()
        self._lock = threading.Lock()

    def advance(self, count: int = 1) -> None:
        """Counts finished units. Thread-safe: launchers of several GPUs share a step."""
        with self._lock:
            self.done += count
            if self._bar is not None and self._task is not None:
                self._bar.update(self._task, completed=self.done)
            elif time.monotonic() - self._said >= PLAIN_SECONDS:
                self._say()

    def expect(self, more: int) -> None:
        """Adds units that must be done again. Thread-safe."""
        with self._lock:
            self.total += more
            if self._bar is not None and self._task is not None:
                self._bar.update(self._task, total=self.total)

    def _say(self) -> None:
        self._said = time.monotonic()
        elapsed = self._said - self._started
        left = elapsed / self.done * (self.total - self.done) if self.done else float("nan")
        print(f"{self.title}: {self.done}/{self.total}, about {left:.0f} s left", file=sys.stderr, flush=True)

    def close(self) -> None:
        if self._bar is None:
            elapsed = time.monotonic() - self._started
            print(f"{self.title}: {self.done}/{self.total} in {elapsed:.1f} s", file=sys.stderr, flush=True)


@contextmanager
def step(title: str, total: int, console: Console) -> Iterator[Step]:
    """The progress of a stage of ``total`` units while the block runs; a bar if the console is a terminal."""
    if not console.is_terminal:
        one = Step(title, total, None)
        yield one
        one.close()
        return
    counts = 2 * len(str(total)) + 1
    room = console.width - TITLE_WIDTH - counts - 2 * TIME_WIDTH - OTHER_WIDTH
    columns = [
        TextColumn(f"{{task.description:<{TITLE_WIDTH}}}"),
        *([BarColumn(min(room, WIDEST_BAR))] if room >= LEAST_BAR else []),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("left"),
    ]
    with Progress(*columns, console=console) as bar:
        yield Step(title, total, bar)


@contextmanager
def waiting(title: str, console: Console, total: int = 1) -> Iterator[Step]:
    """What the block is at, on a terminal after WAIT_SHOWN_S: a line with the time, and with counts of several units,
    that is gone when the block ends. The block may print lines, but begin no ``step``."""
    if not console.is_interactive:
        yield Step(title, total, None)
        return
    counts = [MofNCompleteColumn()] if total > 1 else []
    bar = Progress(TextColumn(f"{{task.description:<{TITLE_WIDTH}}}"), *counts, TimeElapsedColumn(),
                   console=console, transient=True)  # fmt: skip
    one = Step(title, total, bar)

    def show() -> None:
        with suppress(LiveError):  # before 14.1, rich shows nothing below another bar
            bar.start()

    timer = threading.Timer(WAIT_SHOWN_S, show)
    timer.daemon = True
    timer.start()
    try:
        yield one
    finally:
        timer.cancel()
        timer.join()
        bar.stop()

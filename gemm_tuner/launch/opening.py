"""Opens the GPU for a launcher: its context and the measurement's own buffers, if possible before its turn."""

from __future__ import annotations

import contextlib
import faulthandler
import io
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType

from gemm_tuner.core.language import Language
from gemm_tuner.core.records import Status
from gemm_tuner.launch.bench import Bench
from gemm_tuner.launch.failures import status_of
from gemm_tuner.launch.journal import ADMITTED, OPENED, TURN, Journal
from gemm_tuner.launch.loading import LoadedAhead, Loading, loads_when_called
from gemm_tuner.launch.plan import AHEAD, ANYWHERE, BEHIND, STOP_FILE, Plan
from gemm_tuner.launch.processor import processor_of
from gemm_tuner.launch.stopwatch import Stopwatch
from gemm_tuner.launch.turn import Turn

# To open a GPU ahead takes about a second.
LIMIT_S = 120.0


def opened(
    make: Callable[[], Bench],
    loading: Loading,
    journal: Journal,
    turn: Turn | None,
    place: str = ANYWHERE,
    meanwhile: Callable[[], None] = lambda: None,
) -> Bench:
    """What ``make`` returns, in this launcher's turn; None for no turns. Then what it needs is loaded.

    place:     the plan's.
    meanwhile: called before the turn, when others may be timing.

    Both are done before the turn, beside other launchers, while none is timing. If the GPU's memory does not suffice
    for that, the rest is done in the turn, when others have freed theirs.
    """
    if turn is None:
        journal.reach(ADMITTED)
        bench = make()
        loading.load(last=True)
        journal.reach(OPENED)
        return bench
    made: Bench | None = None
    if place == AHEAD:
        turn.go_ahead()
    with turn.opening():
        journal.reach(ADMITTED)
        try:
            made = make()
            loading.load(last=False)
        except Exception as error:
            if status_of(error) is not Status.OUT_OF_RESOURCES:
                raise
            loading.processor.free_memory()
    journal.reach(OPENED)
    meanwhile()
    if place == BEHIND:
        turn.stay_behind()
    take(turn, journal)
    if made is None or not loading.done:
        turn.begin_timing()  # until then others may hold operands of theirs
    made = make() if made is None else made
    loading.load(last=True)
    return made


def open_ahead(plan: Plan, path: Path, lock: Path | None, make: Callable[[], None]) -> None:
    """Opens the GPU by ``make``, for a plan like this one, while no launcher is timing.

    path: of the plan. lock: as of ``--turn``. The GPU stays open unless its memory does not suffice, which the plan
    itself then says. This process ends if that takes longer than LIMIT_S: nobody else would notice, and all others
    would wait.
    """
    with Turn(lock, path.parent).opening() if lock else contextlib.nullcontext(), ends_process_after(LIMIT_S):
        try:
            make()
        except Exception as error:
            if status_of(error) is not Status.OUT_OF_RESOURCES:
                raise
        processor_of(plan.device).free_memory()


def load_ahead(plan: Plan, scripts: list[ModuleType], language: Language, ahead: LoadedAhead) -> None:
    """Opens the processor for a plan of finals like this one, whose works have no entries yet: makes once what a
    measurement needs, loads the vendor library's kernels, and begins the recording; not where a script loads kernels
    when they are called, which must not be recorded.
    """
    journal, processor = Journal(io.StringIO()), processor_of(plan.device)
    make_once(plan, language)
    records = plan.capture_range and not any(map(loads_when_called, scripts))
    Loading(replace(plan, capture_range=records), journal, scripts, processor, Stopwatch(), ahead).load(last=False)


def make_once(plan: Plan, language: Language) -> None:
    """Opens the processor, and makes what a measurement needs, which is let go."""
    processor = processor_of(plan.device)
    processor.wait()
    Bench(plan, Journal(io.StringIO()), Path(STOP_FILE), language, processor)
    processor.wait()


@contextlib.contextmanager
def ends_process_after(seconds: float) -> Iterator[None]:
    """Ends this process at once if the block takes longer, and prints where it is. Not by a thread of Python's, which
    would wait for the interpreter's lock: torch holds it while it initialises CUDA."""
    faulthandler.dump_traceback_later(seconds, exit=True)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


def take(turn: Turn | None, journal: Journal) -> None:
    """Waits for the turn, if launchers take turns."""
    if turn is not None:
        turn.take()
        journal.reach(TURN)

"""``python generated/x.py --plan plan.json``: executes a plan, and writes a journal into the plan's folder."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from types import ModuleType

from gemm_tuner.core.errors import UserError
from gemm_tuner.core.language import Language, language_of
from gemm_tuner.core.workload import FIRST_KIND, workload_of
from gemm_tuner.languages.scripts import load_script
from gemm_tuner.launch.bench import Bench
from gemm_tuner.launch.clock import CLOCK_FILE, HostClock
from gemm_tuner.launch.failures import StickyError
from gemm_tuner.launch.journal import (
    IMPORTED,
    LAUNCHED,
    OTHERS_OPEN,
    READY,
    SPIN_UP,
    Compiles,
    DeviceUsed,
    Finished,
    Journal,
    Process,
    Spent,
)
from gemm_tuner.launch.loading import LoadedAhead, Loading, loads_when_called
from gemm_tuner.launch.opening import opened, take
from gemm_tuner.launch.plan import EXIT_CANNOT_WRITE, SCREEN, STOP_FILE, VERIFY, Plan
from gemm_tuner.launch.processor import processor_of
from gemm_tuner.launch.reading_ahead import read_ahead
from gemm_tuner.launch.stopwatch import Stopwatch
from gemm_tuner.launch.timing import finals, screen
from gemm_tuner.launch.turn import Turn
from gemm_tuner.launch.verify import verify
from gemm_tuner.system.documents import show
from gemm_tuner.system.processes import exit_with_tuner, identity

EXIT_STICKY = 75
HELP = """\
A plan is JSON: {"format": 1, "stage": "screen" | "finals" | "verify", "scripts": [file, ...],
"work": [{"problem": {...}, "entries": [[script index, config name], ...], "vendor": false}, ...],
"method": {...}, "device": "cuda" | "cpu", "scopes": false, "stop_at_first_right": true}.
The files lie beside the script that is started. Run it under a profiler to time it; the tuner writes such plans, and
keeps them with --keep."""


def main(
    argv: list[str] | None = None,
    scripts_dir: str = "",
    load: Callable[[str], ModuleType] = load_script,
    ahead: LoadedAhead | None = None,
) -> int:
    """Executes the plan of the command line; returns the exit status.

    scripts_dir: folder of the plan's scripts. load: imports one of them. ahead: what this process has loaded before.
    """
    parser = argparse.ArgumentParser(
        description="Run the kernels of a plan.", epilog=HELP, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--plan", type=Path, required=True, help="the plan, a JSON file")
    parser.add_argument(
        "--turn",
        type=Path,
        help="a file that this launcher locks before its first kernel, until its last one has ended",
    )
    parser.add_argument("--journal", type=Path, help="where the journal goes (default: journal.jsonl beside the plan)")
    arguments = parser.parse_args(argv)
    exit_with_tuner()
    try:
        plan = Plan.read(arguments.plan)
        scripts = load_scripts(plan, arguments.plan, Path(scripts_dir), load)
    except UserError as error:
        print(error.one_line(), file=sys.stderr)
        return error.exit_status
    if ahead is not None and ahead.records and (any(map(loads_when_called, scripts)) or not ahead.has_called(plan)):
        return 0  # without a journal: another process takes its place, which loads before it records
    path = arguments.journal or arguments.plan.parent / "journal.jsonl"
    try:
        stop = arguments.plan.parent / STOP_FILE
        return run_journalled(plan, scripts, path, stop, arguments.turn, ahead=ahead)
    except OSError as error:
        print(f"{path}: {error.strerror or error}", file=sys.stderr)
        return EXIT_CANNOT_WRITE


def run_journalled(
    plan: Plan,
    scripts: list[ModuleType],
    path: Path,
    stop: Path,
    turn: Path | None = None,
    recording: AbstractContextManager[None] | None = None,
    ahead: LoadedAhead | None = None,
) -> int:
    """Executes a plan and returns the exit status. Raises OSError if the journal at ``path`` cannot be written.

    turn:      file that is locked while the GPU is used, so that several launchers can share it; None for no lock.
    recording: a context that records kernel times in this process (proton), if it is timed from inside.
    ahead:     what this process has loaded before.
    """
    with path.open("w", encoding="utf-8") as stream:
        journal = Journal(stream)
        journal.write(Process(identity(os.getpid())))
        language = language_for(plan)
        if plan.stage != VERIFY:
            processor_of(plan.device)  # imports torch without using the GPU
        compiles = language.start_launcher(plan.device)
        journal.reach(IMPORTED)
        mine = None if turn is None else Turn(turn, stop.parent)
        try:
            if plan.stage == VERIFY:
                take(mine, journal)
                interpreted, between = plan.device not in devices_of(language), partial(give_way, plan, mine)
                verify(plan, journal, scripts, stop, interpreted=interpreted, between=between)
            else:
                clocked = HostClock(path.parent / CLOCK_FILE) if plan.clock else contextlib.nullcontext()
                with recording or contextlib.nullcontext(), clocked as clock:
                    run(plan, journal, scripts, stop, language, clock, mine, ahead)
        except StickyError as error:
            print(f"GPU context lost: {error}", file=sys.stderr)
            return EXIT_STICKY
        finally:
            journal.write(Compiles(compiles.compiled, compiles.from_cache))
        journal.write(Finished())
    return 0


def give_way(plan: Plan, turn: Turn | None) -> None:
    """Between two sizes of a check: others may time on the GPU before it goes on."""
    if turn is not None:
        processor_of(plan.device).free_memory()
        turn.give_way()


def language_for(plan: Plan) -> Language:
    """The language of a plan's problems, which starts their launchers."""
    return language_of(workload_of(plan.work[0].problem.kind if plan.work else FIRST_KIND).language)


def devices_of(language: Language) -> set[str]:
    """The torch devices that a language's kernels run on without an interpreter."""
    return {"cpu" if backend == "cpu" else "cuda" for backend in language.backends}


def load_scripts(
    plan: Plan, where: Path, folder: Path, load: Callable[[str], ModuleType] = load_script
) -> list[ModuleType]:
    """Imports the plan's scripts from ``folder``. This executes them, so a plan must be trusted like a program.

    Raises UserError for a missing script, and for an entry that its script does not contain.
    """
    paths = [folder / name for name in plan.scripts]
    for path in paths:
        if not path.is_file():
            raise UserError(f"there is no script {show(str(path))}", where=str(where))
    scripts = [load(str(path)) for path in paths]
    for work in plan.work:
        for script, name in (*work.entries, *work.reference):
            if name not in scripts[script].CONFIGS:
                raise UserError(f"{plan.scripts[script]} has no configuration {show(name)}", where=str(where))
    return scripts


def run(
    plan: Plan,
    journal: Journal,
    scripts: list[ModuleType],
    stop: Path,
    language: Language,
    clock: HostClock | None,
    turn: Turn | None = None,
    ahead: LoadedAhead | None = None,
) -> None:
    """Executes a plan of screening or finals. It ends early, between two configurations, if the file ``stop`` exists.

    turn: taken when the GPU is open, and released after the last kernel, because the profiler's report does not use the
          GPU. ahead: what this process has loaded before.
    """
    spent, processor = Stopwatch(), processor_of(plan.device)

    def make() -> Bench:
        bench = Bench(plan, journal, stop, language, processor, clock, spent)
        processor.wait()
        return bench

    loading = Loading(plan, journal, scripts, processor, spent, ahead)
    reads = partial(read_ahead, plan, scripts, lambda: stop.exists() or plan.is_over())
    bench = opened(make, loading, journal, turn, plan.place, reads)
    journal.write(DeviceUsed(processor.name, processor.torch_version))
    if turn is not None:
        with spent.of(OTHERS_OPEN):
            turn.begin_timing()
    with spent.of(SPIN_UP):
        bench.spin_up()
    journal.reach(READY)
    stage: Callable[..., None] = screen if plan.stage == SCREEN else finals
    left = sum(len(work.entries) for work in plan.work)
    for index, work in enumerate(plan.work):
        if bench.stopped:
            break
        bench.share_time(len(work.entries), left)
        left -= len(work.entries)
        stage(bench, index, work, scripts)
        processor.free_memory()
    journal.reach(LAUNCHED)
    if turn is not None:
        turn.end()
    for part, seconds in spent.seconds.items():
        journal.write(Spent(part, seconds))


if __name__ == "__main__":
    sys.exit(main())

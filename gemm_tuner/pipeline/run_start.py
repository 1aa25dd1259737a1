"""Starts or resumes a run: its folder, lock and store, and what was running when it was killed."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import groupby
from pathlib import Path
from typing import Any

from gemm_tuner.core.errors import EXIT_INPUT, UserError
from gemm_tuner.core.records import Problem
from gemm_tuner.launch.journal import read_journal
from gemm_tuner.launch.plan import SCREEN, Plan
from gemm_tuner.measure.parse_run import at_end
from gemm_tuner.measure.supervise import ACCOUNTED
from gemm_tuner.pipeline.prepare import Environment
from gemm_tuner.pipeline.run_identity import (
    OLDER,
    configs_sha,
    differences,
    fingerprint,
    gpu_labels,
    job_key,
    older_text,
)
from gemm_tuner.pipeline.run_options import RunOptions
from gemm_tuner.store import older_configs, run_folder
from gemm_tuner.store.results_file import read_earlier
from gemm_tuner.store.run_folder import RunFolder
from gemm_tuner.store.store import KERNELS_WANTED, Store
from gemm_tuner.system.run_lock import RunLock

# Name of a fact: labels of the GPUs of the last start.
GPUS = "GPUs"
FINISHED = "finished"
WRITES_AGAIN = "finished, and writes its rows again"


def begin(
    options: RunOptions,
    environment: Environment,
    profiler: str,
    stack: ExitStack,
    *,
    resumes: bool,
    say: Callable[[str], None] = lambda _: None,
) -> tuple[RunFolder, Store]:
    """(folder, open store) of the run; ``stack`` closes and unlocks them.

    resumes: continue an unfinished run of the same sizes. A finished run is reused if its fingerprint is the same and
    the budget is not larger; otherwise a new run begins.
    say:     called with a line about what a resumed run continues with.
    Raises UserError if an unfinished run has another fingerprint, EnvironmentFault if another process runs it or the
    folder cannot be written.
    """
    now = fingerprint(options, environment, profiler)
    key = job_key(options, environment.source, "tune" if resumes else "given")
    if resumes and not options.fresh:
        folder = run_folder.find(options.output_dir, key, options.cache_name)
        if folder is not None:
            found = _go_on(folder, now, options, stack)
            if found is not None:
                if not is_finished(found):
                    _say_what_stays(found, options, gpu_labels(environment), folder, say)
                return folder, found
    folder = run_folder.create(options.output_dir, key, options.cache_name)
    store = _open(folder, stack)
    stack.enter_context(_gone_if_refused(folder, store))
    _note_begin(store, options, now)
    store.set_fact("budget_s", options.budget_s)
    store.set_fact(GPUS, gpu_labels(environment))
    return folder, store


@contextmanager
def _gone_if_refused(folder: RunFolder, store: Store) -> Iterator[None]:
    """Removes a new run's folder, while it is locked, if the command line, or a file that it names, turns out to be
    wrong before there is anything to keep: no other command would go on there."""
    try:
        yield
    except UserError as error:
        if error.exit_status == EXIT_INPUT and store.is_empty():
            folder.remove()
        raise


def _note_begin(store: Store, options: RunOptions, fingerprint: dict[str, object]) -> None:
    older_configs.keep(store, options.older, options.older_served)
    store.set_fact("fingerprint", fingerprint)
    store.set_fact("began_s", time.time())


def _say_what_stays(
    store: Store, options: RunOptions, gpus: list[str], folder: RunFolder, say: Callable[[str], None]
) -> None:
    """Prints what a resumed run continues with, and drops results that are invalid on its present GPUs."""
    problems = [entry.problem for entry in options.entries]
    say(going_on(store, problems, folder.root))
    anew = keep_to_gpus(store, problems, gpus)
    line = moved(store.fact(GPUS, []), gpus, anew)
    if line:
        say(line)
    store.set_fact(GPUS, gpus)


def _open(folder: RunFolder, stack: ExitStack) -> Store:
    lock = RunLock(folder.root)
    lock.take()
    stack.callback(lock.release)
    store = Store(folder.store)
    stack.callback(store.close)
    return store


def _go_on(folder: RunFolder, now: dict[str, object], options: RunOptions, stack: ExitStack) -> Store | None:
    """The store of an earlier run to resume; None if that run is finished and has another fingerprint. A finished run
    whose rows are missing in the results file is also resumed, to write them again."""
    budget_s = options.budget_s
    with ExitStack() as mine:
        store = _open(folder, mine)
        if store.fact("fingerprint") is None:  # killed before the run began
            _note_begin(store, options, now)
        now = {**now, **_older_as_begun(store, options)}
        if is_finished(store):
            if differences(store.fact("fingerprint"), now) or _has_more_time(budget_s, store.fact("budget_s", 0.0)):
                return None
            if not _rows_are_there(folder.results_path(options.results_file), store, options):
                store.set_fact("state", WRITES_AGAIN)
                folder.make()
        else:
            require_same(store, now, folder.root)
            folder.make()
            note_what_ran(folder.raw, store)
            store.set_fact("budget_s", budget_s)
        stack.push(mine.pop_all())
        return store


def _rows_are_there(path: Path, store: Store, options: RunOptions) -> bool:
    """Whether the results file has a row for each size with a chosen configuration."""
    if not path.exists():
        return False
    rows = read_earlier(path).rows
    finished = ((entry.problem, store.finished(entry.problem)) for entry in options.entries)
    return all(problem in rows for problem, outcome in finished if outcome and outcome[0])


def _older_as_begun(store: Store, options: RunOptions) -> dict[str, object]:
    """The fingerprint's part for --update if the run itself rewrites that file: the value at the start of the run.
    After the run has finished, it applies to the file as the run left it."""
    if not options.updates_in_place:
        return {}
    if is_finished(store) and store.fact("configs_sha") != configs_sha(options.older):
        return {}
    return {OLDER: older_text(older_configs.kept(store), options.min_improvement_pct)}


def _has_more_time(budget_s: float, before_s: float) -> bool:
    """Whether a budget (0: unlimited) is larger than that of an earlier run."""
    return before_s > 0 and (budget_s == 0 or budget_s > before_s)


def is_finished(store: Store) -> bool:
    return bool(store.fact("state") == FINISHED)


def writes_again(store: Store) -> bool:
    """Whether the run was finished before, and goes on only because its rows are gone from the results file."""
    return bool(store.fact("state") == WRITES_AGAIN)


def require_same(store: Store, now: Mapping[str, Any], where: Path) -> None:
    """Raises UserError, naming each difference, if an unfinished run has another fingerprint."""
    different = differences(store.fact("fingerprint", {}), now)
    if different:
        raise UserError(
            f"an unfinished run of these sizes cannot go on, since its timings would be mixed with others: "
            f"{'; '.join(different)}",
            where=str(where),
            hint="--fresh starts a new run and leaves this one alone",
        )


def going_on(store: Store, problems: Sequence[Problem], where: Path) -> str:
    """The first line of output of a resumed run."""
    compiled = store.num_compiles()
    wanted = max(compiled, int(store.fact(KERNELS_WANTED, 0)))
    kernels = f"{compiled} of {wanted} kernels compiled, " if wanted else ""
    finished = len(problems) - len(unfinished(store, problems))
    shown = where.relative_to(Path.cwd()) if where.is_relative_to(Path.cwd()) else where
    return f"going on with {shown}: {kernels}{finished} of {len(problems)} sizes finished"


def unfinished(store: Store, problems: Iterable[Problem]) -> list[Problem]:
    return [problem for problem in problems if store.finished(problem) is None]


def keep_to_gpus(store: Store, problems: Iterable[Problem], gpus: Sequence[str]) -> int:
    """Drops screening times of unfinished sizes that are from a GPU on which the run cannot continue the size, because
    the times of one size must be from one GPU. Returns the number of sizes with dropped times.

    gpus: labels of the run's present GPUs. If several of them have timed a size, the one with the most times is kept.
    """
    anew = 0
    for problem in unfinished(store, problems):
        counts = store.timed_on(problem, SCREEN)
        here = {gpu: count for gpu, count in counts.items() if gpu in gpus}
        home = max(here, key=lambda gpu: here[gpu]) if here else ""
        if any(gpu != home for gpu in counts):
            store.drop_other_gpus(problem, SCREEN, home)
        anew += bool(counts) and not here
    return anew


def moved(before: Sequence[str], now: Sequence[str], anew: int) -> str:
    """A line about a resumed run that uses other GPUs of the same model; "" if all earlier GPUs are still used."""
    gone = [gpu for gpu in before if gpu not in now]
    if not gone:
        return ""
    stays = "compiled kernels and finished sizes stay"
    return (
        f"it ran on {', '.join(gone)} and goes on on {', '.join(now)}: {stays}, {anew} unfinished sizes are timed anew"
    )


def homes(store: Store, problems: Iterable[Problem], gpus: Sequence[str]) -> dict[Problem, int]:
    """The GPU that has screened each size, as an index in ``gpus``."""
    found = {}
    for problem in problems:
        screened = [gpu for gpu in store.timed_on(problem, SCREEN) if gpu in gpus]
        if screened:
            found[problem] = gpus.index(screened[0])
    return found


def note_what_ran(raw: Path, store: Store) -> int:
    """Stores the configurations that were running when launchers of the run were killed from outside.

    Each profiler start is counted once. Processes of finals that start together load kernels side by side, the same one
    at a time: of their folders the one with the most starts counts for all. Returns the number of such starts.
    """
    running: Counter[tuple[str, str]] = Counter()
    beside: Counter[tuple[str, str]] = Counter()
    for _, paths in groupby(sorted(raw.glob("*/start*/plan.json")), lambda path: path.parents[1]):
        together: Counter[tuple[str, str]] = Counter()
        for path in paths:
            if (path.parent / ACCOUNTED).exists():
                continue
            at = at_end(read_journal(path.parent / "journal.jsonl"))
            if at is not None and at[1]:
                plan = Plan.read(path)
                (together if plan.together else running)[plan.work[at[0]].problem.key, at[1]] += 1
            (path.parent / ACCOUNTED).touch()
        beside |= together
    running += beside
    store.add_begun(running.elements())
    return running.total()

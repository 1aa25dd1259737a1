"""Going on with a run that was killed: which folder, whether it may, and what ran when it died."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gemm_tuner.core.errors import UserError
from gemm_tuner.core.records import Problem
from gemm_tuner.launch.journal import read_journal
from gemm_tuner.launch.plan import SCREEN, Plan
from gemm_tuner.measure.parse_run import running_at_end
from gemm_tuner.measure.supervise import ACCOUNTED
from gemm_tuner.pipeline.run_identity import differences
from gemm_tuner.store.store import KERNELS_WANTED, Store

FINISHED = "finished"


def is_finished(store: Store) -> bool:
    return bool(store.fact("state") == FINISHED)


def require_same(store: Store, now: Mapping[str, Any], where: Path) -> None:
    """Raises UserError, naming each difference, when a run that is not finished was begun in another way."""
    different = differences(store.fact("fingerprint", {}), now)
    if different:
        raise UserError(
            f"an unfinished run of these sizes cannot go on, since its timings would be mixed with others: "
            f"{'; '.join(different)}",
            where=str(where),
            hint="--fresh starts a new run and leaves this one alone",
        )


def going_on(store: Store, problems: Sequence[Problem], where: Path) -> str:
    """The line that a run which goes on begins with."""
    compiled = store.num_compiles()
    wanted = max(compiled, int(store.fact(KERNELS_WANTED, 0)))
    kernels = f"{compiled} of {wanted} kernels compiled, " if wanted else ""
    finished = len(problems) - len(unfinished(store, problems))
    shown = where.relative_to(Path.cwd()) if where.is_relative_to(Path.cwd()) else where
    return f"going on with {shown}: {kernels}{finished} of {len(problems)} sizes finished"


def unfinished(store: Store, problems: Iterable[Problem]) -> list[Problem]:
    return [problem for problem in problems if store.settled(problem) is None]


def keep_to_gpus(store: Store, problems: Iterable[Problem], gpus: Sequence[str]) -> int:
    """Drops the screenings of unfinished sizes that are from another GPU than the rest of them can be from: those of
    one size are compared with each other. Returns how many sizes are timed anew.

    gpus: labels of the GPUs that the run has now. Of several that have timed a size, it stays with the one that has
    timed most of it.
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
    """The line on a run that goes on on other GPUs of the model that it began on; empty where all are still there."""
    gone = [gpu for gpu in before if gpu not in now]
    if not gone:
        return ""
    stays = "compiled kernels and finished sizes stay"
    return (
        f"it ran on {', '.join(gone)} and goes on on {', '.join(now)}: {stays}, {anew} unfinished sizes are timed anew"
    )


def homes(store: Store, problems: Iterable[Problem], gpus: Sequence[str]) -> dict[Problem, int]:
    """Which of the run's GPUs has screened a size, by its place among them."""
    found = {}
    for problem in problems:
        screened = [gpu for gpu in store.timed_on(problem, SCREEN) if gpu in gpus]
        if screened:
            found[problem] = gpus.index(screened[0])
    return found


def note_what_ran(raw: Path, store: Store) -> int:
    """Notes the configurations that were running when launchers of the run were killed from outside.

    Each start is noted once. Returns how many were running.
    """
    running = []
    for path in sorted(raw.glob("*/start*/plan.json")):
        if (path.parent / ACCOUNTED).exists():
            continue
        at = running_at_end(read_journal(path.parent / "journal.jsonl"))
        if at is not None:
            running.append((Plan.read(path).work[at[0]].problem.key, at[1]))
        (path.parent / ACCOUNTED).touch()
    store.add_begun(running)
    return len(running)

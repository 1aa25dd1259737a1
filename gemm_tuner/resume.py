"""Going on with a run that was killed: which folder, whether it may, and what ran when it died."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gemm_tuner.errors import UserError
from gemm_tuner.launcher.journal import read_journal
from gemm_tuner.launcher.plan import Plan
from gemm_tuner.outcomes import running_at_end
from gemm_tuner.run_identity import differences
from gemm_tuner.store import Store
from gemm_tuner.watching import ACCOUNTED

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

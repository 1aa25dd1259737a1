"""Refuses a replay that cannot come to anything: the recording holds none of the sizes, or none of their kernels."""

from __future__ import annotations

import shlex

from gemm_tuner.core.errors import UserError
from gemm_tuner.core.records import Device, Problem
from gemm_tuner.launch.plan import VERIFY, Plan
from gemm_tuner.measure.replay import Recording
from gemm_tuner.pipeline import prepare
from gemm_tuner.pipeline.settings import Settings
from gemm_tuner.system.input_files import printable
from gemm_tuner.system.installation import data_folder

MOST_NAMED = 8


def made_with(settings: Settings) -> str:
    """The flags that say which configurations a run tries, as typed; those of the default space are left out."""
    words = [
        *(["--space", str(settings.space_file)] if settings.space_file else []),
        *(["--rules", str(settings.rules_dir)] if settings.rules_dir != data_folder("rules") else []),
        *(["--families", ",".join(settings.families)] if settings.families else []),
        *(["--no_heuristics"] if not settings.heuristics else []),
        *("--search", settings.search),
    ]
    return shlex.join(words)


def timed_in(recording: Recording) -> dict[Problem, set[str]]:
    """The configurations that the recording's plans hand out to be timed, by problem. Raises UserError."""
    found: dict[Problem, set[str]] = {}
    for path in sorted(recording.folder.glob("[0-9]*-*/start*/plan.json")):
        plan = Plan.read(path)
        for work in plan.work if plan.stage != VERIFY else ():
            found.setdefault(work.problem, set()).update(name for _, name in work.entries)
    return found


def require_all(settings: Settings, device: Device, recording: Recording) -> None:
    """Raises UserError for a size that the recording does not hold, or of which it holds no configuration that would
    be tried: both before anything is compiled."""
    known, where = timed_in(recording), f"--replay {printable(recording.folder)}"
    for entry in settings.entries:
        if entry.problem not in known:
            listed = [problem.key for problem in known][:MOST_NAMED]
            more = f" and {len(known) - MOST_NAMED} more" if len(known) > MOST_NAMED else ""
            raise UserError(
                f"the recording holds no {entry.problem.key}", where=where, accepted=", ".join(listed) + more
            )
    candidates = prepare.load_space(settings, device)
    for entry in settings.entries:
        pruned = prepare.cut_space(candidates, entry.problem, device)
        if len(pruned.kept) and known[entry.problem].isdisjoint(candidates.names[pruned.kept]):
            raise UserError(
                f"the recording holds none of the {len(pruned.kept)} configurations that would be tried of "
                f"{entry.problem.key}",
                where=where,
                hint=f"it was made with {recording.made_with}: give the same"
                if recording.made_with
                else "give the --space, --rules and --families that it was made with",
            )

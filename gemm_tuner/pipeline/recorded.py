"""Verifies, before anything is compiled, that a recording has the sizes and kernels of a replay."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from gemm_tuner.consumers.server import Server
from gemm_tuner.core.errors import UserError
from gemm_tuner.core.records import Device, Problem
from gemm_tuner.launch.plan import FINALS, SCREEN, VERIFY
from gemm_tuner.measure.replay import Recording
from gemm_tuner.pipeline import prepare, serving_space
from gemm_tuner.pipeline.run_options import RunOptions
from gemm_tuner.space.size_state import SizeState
from gemm_tuner.system.input_files import printable
from gemm_tuner.system.installation import data_folder

MOST_NAMED = 8
PATH_FLAGS = ("--space", "--rules")

Known = Mapping[Problem, set[str]]


def made_with(options: RunOptions) -> str:
    """The flags that determine which configurations a run tries, as typed, without those at their defaults."""
    words = [
        *(["--space", str(options.space_file)] if options.space_file else []),
        *(["--rules", str(options.rules_dir)] if options.rules_dir != data_folder("rules") else []),
        *(["--families", ",".join(options.families)] if options.families else []),
        *(["--no_heuristics"] if not options.heuristics else []),
        *(word for name in options.serve for word in ("--serve", name)),
        *("--search", options.search),
    ]
    return shlex.join(words)


def found_here(recording: Recording) -> str:
    """The flags that a recording was made with, with paths adapted to the current folder."""
    words = shlex.split(recording.made_with)
    for at, flag in enumerate(words[:-1]):
        if flag in PATH_FLAGS:
            beside = (folder / Path(words[at + 1]).name for folder in (recording.folder, recording.folder.parent))
            words[at + 1] = str(next((path for path in beside if path.exists()), words[at + 1]))
    return shlex.join(words)


def planned_in(recording: Recording, *stages: str) -> dict[Problem, set[str]]:
    """The configurations in the recording's plans of these stages, by problem. Raises UserError."""
    found: dict[Problem, set[str]] = {}
    for work in (work for _, plan in recording.starts(*stages) for work in plan.work):
        found.setdefault(work.problem, set()).update(name for _, name in work.entries)
    return found


def require_all(options: RunOptions, device: Device, recording: Recording, wanted: Iterable[Server] = ()) -> None:
    """Raises UserError for sizes that the recording does not have, and for a size of which it has no configuration that
    would be tried or that a server of --serve could launch."""
    known = planned_in(recording, SCREEN, FINALS)
    _require_sizes([entry.problem for entry in options.entries], known, recording)
    candidates = prepare.load_space(options, device)
    for entry in options.entries:
        problem = entry.problem
        pruned = prepare.cut_space(candidates, problem, device)
        tried = {f"would be tried of {problem.key}": pruned.kept}
        for server in wanted:
            if server.kernel is None and not server.fault(problem):
                places = serving_space.places_of(server, candidates, problem)
                tried[f"{server.name} could launch of {problem.key}"] = places
        for what, places in tried.items():
            if len(places) and known[problem].isdisjoint(candidates.names_of(places)):
                raise UserError(
                    f"the recording holds none of the {len(places)} configurations that {what}",
                    where=_where(recording),
                    hint=f"it was made with {found_here(recording)}: give the same"
                    if recording.made_with
                    else "give the --space, --rules and --families that it was made with",
                )


def require_given(states: Iterable[SizeState], recording: Recording, *, timed: bool) -> None:
    """Raises UserError for given configurations (the first of each size) that the recording has not timed in finals
    (``timed``), or not checked."""
    stage, what = (FINALS, "finals") if timed else (VERIFY, "check")
    own = {state.problem: next(iter(state.kept)) for state in states}
    known = planned_in(recording, stage)
    _require_sizes(own, known, recording)
    lacking = [f"{name} at {problem.key}" for problem, name in own.items() if name not in known[problem]]
    if lacking:
        raise UserError(f"the recording holds no {what} of {_listed(lacking)}", where=_where(recording))


def _require_sizes(problems: Iterable[Problem], known: Known, recording: Recording) -> None:
    lacking = [problem.key for problem in problems if problem not in known]
    if lacking:
        raise UserError(
            f"the recording holds no {_listed(lacking)}",
            where=_where(recording),
            accepted=_listed([problem.key for problem in known]) or "a recording of these sizes; it holds none",
        )


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more


def _where(recording: Recording) -> str:
    return f"--replay {printable(recording.folder)}"

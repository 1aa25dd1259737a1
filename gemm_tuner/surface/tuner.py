"""Tunes functions in this process: each configuration is built, checked and screened; the best are compared in finals.

An error only affects its configuration. A crash of the process or of the GPU's context ends the run; to survive
crashes use ``profiler``, or the commands ``kernel`` and ``spec``.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gemm_tuner.core.errors import UserError
from gemm_tuner.store.run_folder import DEFAULT_OUTPUT_DIR
from gemm_tuner.surface.clocks import ChosenClock, Clock
from gemm_tuner.surface.external import tune_external
from gemm_tuner.surface.folder import SessionFolder
from gemm_tuner.surface.judge import Judge
from gemm_tuner.surface.records import Check, Effort, Tuned, names_of
from gemm_tuner.surface.session import Build, Session


def tune_callables(
    configs: Iterable[Mapping[str, Any]],
    build: Build,
    *,
    name: str = "callables",
    names: Sequence[str] | None = None,
    check: Check | None = None,
    clock: str | Clock = "auto",
    baselines: Mapping[str, Any] | None = None,
    effort: Effort | None = None,
    profiler: str = "",
    output_dir: Path | str | None = DEFAULT_OUTPUT_DIR,
    seed: int = 0,
) -> Tuned:
    """Finds the fastest correct configuration of a function.

    configs:   the configurations to try. names: their names; by default made from their values.
    build:     takes a configuration; returns a Call, or a function without arguments.
    check:     for calls without their own check.
    clock:     "auto", "proton", "events", "host", or an object with ``name`` and ``measure``.
    baselines: functions by name that are timed in the finals but never chosen.
    profiler:  such as "nsys" or "auto": configurations run in other processes, the finals under this profiler, and a
               crash only affects one configuration. Another process must then be able to import ``build``, the
               reference and the baselines; ``seed`` makes their random inputs equal. "clock" is for CPU functions.
    output_dir: where the folder of this run is created; None to write nothing.

    Raises UserError without configurations, or if the reference fails. ``Tuned.best`` is None if none is correct.
    """
    given = [dict(config) for config in configs]
    if not given:
        raise UserError("No configurations to tune", where=name, hint="give at least one, {} for the defaults")
    names, effort = names_of(given) if names is None else names, effort or Effort()
    if profiler:
        return tune_external(
            dict(zip(names, given, strict=True)), build, name=name, check=check, baselines=baselines or {},
            effort=effort, profiler=profiler, output_dir=output_dir, seed=seed,
        )  # fmt: skip
    started = time.monotonic()
    folder = SessionFolder.make(output_dir, name)
    session = Session(name, build, Judge(check), ChosenClock(clock), effort, folder)
    with shown(name, len(given), effort.chunk) as advance:
        for at in range(0, len(given), effort.chunk):
            chunk = slice(at, at + effort.chunk)
            session.screen(names[chunk], given[chunk])
            advance(len(given[chunk]))
    session.record_agreement()
    screened = time.monotonic()
    session.finals(baselines or {}, seed)
    ended = time.monotonic()
    builds = session.build_seconds
    stages = {"builds": builds, "screen": screened - started - builds, "finals": ended - screened}
    tuned = result(session, ended - started, stages)
    folder.write(tuned, seed)
    return tuned


@contextmanager
def shown(title: str, total: int, chunk: int) -> Iterator[Callable[[int], None]]:
    """A progress bar on a terminal if there is more than one chunk; otherwise nothing is printed."""
    if total <= chunk or not sys.stderr.isatty():
        yield lambda count: None
        return
    from rich.console import Console

    from gemm_tuner.system.progress import TITLE_WIDTH, step

    with step(title[:TITLE_WIDTH], total, Console(stderr=True)) as bar:
        yield bar.advance


def result(session: Session, seconds: float, stage_seconds: Mapping[str, float]) -> Tuned:
    """The result of a session."""
    ranked = [session.rows[name] for name in session.order]
    others = [row for row in session.rows.values() if row.name not in session.order]
    best = ranked[0] if ranked else None
    return Tuned(
        name=session.name,
        rows=(*ranked, *others),
        best=best,
        kernel=session.held[best.name].product if best and best.name in session.held else None,
        ties=session.ties,
        clock=session.clock.name,
        seconds=seconds,
        method=session.clock.method,
        folder=session.folder.path,
        stage_seconds=stage_seconds,
        noise_pct=session.noise_pct,
    )

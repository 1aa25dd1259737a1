"""Tunes live functions in this process: each is built, checked and screened alone; the best have finals in rounds.

An error of one configuration costs that one. What ends the process, or the GPU's context, ends the run: what is given a
``profiler``, and ``kernel`` and ``spec`` of the command line, survive that.
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
    """Finds the fastest right configuration of a function.

    configs:   what to try. names: of these; by default made of their values.
    build:     makes a configuration ready: a Call, or a function of no arguments.
    check:     of outputs, for calls that bring none of their own.
    clock:     "auto", "proton", "events", "host", or an object with ``name`` and ``measure``.
    baselines: functions that stand in the finals and are never chosen, by name.
    profiler:  such as "nsys" or "auto": configurations run in processes of their own, the finals under this profiler;
               a crash costs one configuration. ``build``, the reference and baselines must then be functions that
               another process can import; their random inputs are the same in each, by ``seed``. "clock" is for
               functions of the CPU.
    output_dir: where the folder of this run is made; None writes nothing.

    Raises UserError without configurations, or where the reference fails. That none is right is told by ``Tuned.best``.
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
    session.settle_agreement()
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
    """A bar on a terminal, for what takes more than one chunk; the program's own output is left alone elsewhere."""
    if total <= chunk or not sys.stderr.isatty():
        yield lambda count: None
        return
    from rich.console import Console

    from gemm_tuner.system.progress import TITLE_WIDTH, step

    with step(title[:TITLE_WIDTH], total, Console(stderr=True)) as bar:
        yield bar.advance


def result(session: Session, seconds: float, stage_seconds: Mapping[str, float]) -> Tuned:
    """What a session found."""
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

"""The main program of a child process that times functions, alone or under a profiler.

It reads a job and writes a journal as it proceeds, so that a crash does not lose earlier results.
"""

from __future__ import annotations

import contextlib
import os
import random
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from gemm_tuner.core.markers import BEGIN_SYMBOL, END_SYMBOL, FLUSH_SYMBOL
from gemm_tuner.languages.triton import proton_session
from gemm_tuner.launch.plan import AA_TEST
from gemm_tuner.launch.processor import Gpu
from gemm_tuner.surface.clocks import ChosenClock, HostClock
from gemm_tuner.surface.folder import SessionFolder
from gemm_tuner.surface.gpu import flush_bytes, wait
from gemm_tuner.surface.job import JOB, JOURNAL, SCREEN, Begun, Event, Finished, Job, Turns, config_of, told
from gemm_tuner.surface.judge import Judge, fill_with_nan
from gemm_tuner.surface.records import Call, Config
from gemm_tuner.surface.session import Session
from gemm_tuner.system.conversion import decoded
from gemm_tuner.system.processes import exit_with_tuner

EXIT_STICKY = 75


class Journal:
    """Writes events; each is completely in the file before the next step begins."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def write(self, event: Event) -> None:
        self._stream.write(msgspec.json.encode(event) + b"\n")
        self._stream.flush()


def seeded(build: Callable[[Config], Any], seed: int) -> Callable[[Config], Any]:
    """A ``build`` that seeds the random numbers of all libraries for each configuration."""

    def built(config: Config) -> Any:
        random.seed(seed)
        if "numpy" in sys.modules:
            sys.modules["numpy"].random.seed(seed)
        if "torch" in sys.modules:
            sys.modules["torch"].manual_seed(seed)
        return build(config)

    return built


def screen(job: Job, journal: Journal) -> bool:
    """Screens configurations in sequence, so that a crash is caused by the one begun last. Returns False if the GPU's
    context is lost."""
    clock = ChosenClock("auto", locks=False)  # the parent process holds the GPU's lock
    build = seeded(job.build.load(), job.seed)
    session = Session("", build, Judge(job.check.load()), clock, job.effort, SessionFolder(None))
    for name, config in job.configs.items():
        journal.write(Begun(name))
        session.screen([name], [config_of(config)])
        journal.write(told(session.rows[name]))
        if session.lost:
            return False
    session.record_agreement()
    for row in session.rows.values():
        journal.write(told(row))
    return True


def finals(job: Job, journal: Journal) -> bool:
    """Runs rounds over configurations and baselines, each round in a different order."""
    build = seeded(job.build.load(), job.seed)
    makers: dict[str, Callable[[], Any]] = {name: partial(build, config_of(one)) for name, one in job.configs.items()}
    makers |= {name: one.load for name, one in job.baselines.items()}
    running: dict[str, Call] = {}
    for name, make in makers.items():
        journal.write(Begun(name))
        try:
            running[name] = _warm(make(), job.effort.warmup)
        except Exception as error:
            print(f"{name}: {type(error).__name__}: {error}", flush=True)
            if name in job.configs:
                raise
    if job.duplicate_of:
        running[AA_TEST] = running[job.duplicate_of]
    journal.write(Begun(""))
    dice, names, turns = random.Random(f"{job.seed} {job.process}"), list(running), list[str]()
    for _ in range(job.effort.rounds):
        dice.shuffle(names)
        turns += names
    if job.host:
        samples = HostClock().measure([running[name] for name in turns])
        for sample in samples:
            if isinstance(sample, Exception):
                raise sample
        journal.write(Turns(turns, [one for one in samples if isinstance(one, float)]))
    else:
        _record(job, [running[name] for name in turns], len(names))
        journal.write(Turns(turns))
    return True


def _warm(made: Any, calls: int) -> Call:
    call = made if isinstance(made, Call) else Call(made)
    for _ in range(max(1, calls)):
        if call.before:
            call.before()
        fill_with_nan(call.outputs)
        call.run()
        wait()
    return call


def _record(job: Job, turns: list[Call], round_size: int) -> None:
    """Makes calls under a profiler, each after a flush of L2, between marker kernels, and in its own scope."""
    from gemm_tuner.core.language import language_of

    gpu = Gpu()
    support = language_of("triton").support_calls(flush_bytes(), "cuda")
    for launch in support.values():
        launch()
    gpu.wait()
    if job.capture:
        gpu.start_recording()
    for number, call in enumerate(turns):
        if call.before:
            call.before()
        support[FLUSH_SYMBOL]()
        support[BEGIN_SYMBOL]()
        with proton_session.scope(number) if job.scopes else contextlib.nullcontext():
            call.run()
        support[END_SYMBOL]()
        if number % round_size == round_size - 1:
            gpu.wait()
    gpu.wait()
    if job.capture:
        gpu.stop_recording()  # what a user's program and its libraries call at their end may be unknown to the tool


def main(folder: Path) -> int:
    exit_with_tuner()
    job = decoded((folder / JOB).read_bytes(), Job)
    with (folder / JOURNAL).open("wb") as stream:
        journal = Journal(stream)
        if not (screen if job.stage == SCREEN else finals)(job, journal):
            os._exit(EXIT_STICKY)  # a normal exit may hang with a lost context
        journal.write(Finished())
    return 0

"""Replays a recorded run: its traces and journals replace the GPU, the profiler and the checks.

A recording is the ``raw`` folder of a run with ``--keep``: recording.json, and per stage a folder with plan.json,
journal.jsonl and the profiler's output for every start.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from gemm_tuner.core.errors import UserError
from gemm_tuner.core.records import Problem, Status, Timing
from gemm_tuner.core.workload import workload_of
from gemm_tuner.launch.journal import Begin, End, Event, Fail, Finished, Judged, read_journal
from gemm_tuner.launch.plan import AA_TEST, FINALS, SCREEN, VENDOR, VERIFY, Plan
from gemm_tuner.measure.device import Machine
from gemm_tuner.measure.launcher import Launcher
from gemm_tuner.measure.launcher_events import OnEvent, ignore
from gemm_tuner.measure.parse_run import Key, collect, failures
from gemm_tuner.measure.retry import OnFound, StageRun
from gemm_tuner.measure.supervise import PROBE
from gemm_tuner.profilers import PROFILERS, Profiler, TraceError
from gemm_tuner.system.documents import show, write_text_atomically
from gemm_tuner.system.input_files import printable
from gemm_tuner.system.json_records import Count, load_json, record_of

RECORDING, RAW = "recording.json", "raw"
_ARCH = re.compile("sm_[0-9]{2,3}[a-z]?|gfx[0-9a-f]{3,5}")


def write_recording(
    raw: Path,
    machine: Machine,
    gpu: int,
    profiler: Profiler,
    profiler_version: str,
    how: dict[str, str | int],
    made_with: str = "",
    screener: Profiler | None = None,
) -> None:
    """Writes recording.json with what a replay needs.

    profiler:  of the finals, and its version where they ran.
    how:       how it was timed: ``init_type``, ``seed`` and ``l2`` of the results file's header.
    made_with: the flags of the run's search space.
    screener:  the profiler of screening, if it is another one than that of the finals.
    """
    row = {
        "gpu": machine.gpu(gpu),
        "versions": machine.versions,
        "driver": machine.driver,
        "profiler": profiler.name,
        "profiler_version": profiler_version,
        "how": how,
        "made_with": made_with,
        "screener": screener.name if screener else "",
    }
    write_text_atomically(raw / RECORDING, json.dumps(row, indent=1) + "\n")


@dataclass(frozen=True)
class _Gpu:
    """The GPU as reported by the probe; 0 or "" if unknown. Older versions did not write uuid and pci."""

    id: Count
    name: str
    arch: str
    num_sms: Count
    memory_bytes: Count
    l2_bytes: Count
    shared_memory_bytes: Count
    uuid: str = ""
    pci: str = ""


@dataclass(frozen=True)
class _How:
    """Fields from the results file's header."""

    init_type: str
    seed: Count
    l2: str


@dataclass(frozen=True)
class _Notes:
    """The content of recording.json."""

    gpu: _Gpu
    versions: dict[str, str]
    driver: str
    profiler: str
    profiler_version: str
    how: _How
    made_with: str = ""
    screener: str = ""


@dataclass(frozen=True)
class Recording:
    """A recorded run on disk. made_with: the flags of its search space; "" if an older version wrote it."""

    folder: Path
    machine: Machine
    profiler: Profiler
    profiler_version: str
    how: dict[str, str | int]
    made_with: str = ""
    screener: Profiler | None = None

    def starts(self, *stages: str) -> Iterator[tuple[Path, Plan]]:
        """The profiler starts of these stages in order, without those that searched for the cause of a crash."""
        for path in sorted(self.folder.glob("[0-9]*-*/start*/plan.json"), key=in_order):
            plan = Plan.read(path)
            if plan.stage in stages and not (path.parent / PROBE).exists():
                yield path.parent, plan

    def profilers_of(self, plan: Plan) -> list[Profiler]:
        """The profilers of which one has timed a plan, the likeliest first: that of screening may differ from that of
        the finals, which takes its place where it does not work."""
        return [self.screener, self.profiler] if plan.stage == SCREEN and self.screener else [self.profiler]

    def finals_processes(self) -> set[int]:
        """The numbers of the finals processes; {0} for a recording of an earlier version, which has one process."""
        return {plan.process for _, plan in self.starts(FINALS)}

    def finals_together(self) -> bool:
        """Whether the planned processes of the finals started together."""
        return any(plan.together for _, plan in self.starts(FINALS))


def load(folder: Path | None) -> Recording:
    """Reads a recording from its folder, or from the folder of its run. Raises UserError if it is neither."""
    where, accepted = "--replay", "the raw folder of a run made with --keep"
    if folder is None:
        raise UserError("--profiler replay needs the recording's folder", where=where, accepted=accepted)
    if (folder / RAW / RECORDING).exists():  # a run's folder
        folder = folder / RAW
    path = folder / RECORDING
    if not path.is_file():
        raise UserError(f"{printable(folder)} is no recording: it holds no {RECORDING}", where=where, accepted=accepted)
    try:
        notes = record_of(_Notes, load_json(path, "recording"), printable(path))
        known = {profiler.name: profiler for profiler in PROFILERS}
        for name in filter(None, (notes.profiler, notes.screener)):
            if name not in known:
                raise UserError(f"profiler is {show(name)}", accepted=", ".join(known))
        if not _ARCH.fullmatch(notes.gpu.arch):
            raise UserError(f"arch is {show(notes.gpu.arch)}", accepted="such as sm_90 or gfx942")
    except UserError as error:
        what = f"{printable(folder)} is no recording: {error.one_line()}"
        raise UserError(what, where=where, accepted=accepted) from error
    machine = Machine(({**asdict(notes.gpu), "id": 0},), notes.versions, notes.driver)
    of = notes.profiler_version, asdict(notes.how), notes.made_with, known.get(notes.screener)
    return Recording(folder, machine, known[notes.profiler], *of)


def in_order(plan: Path) -> tuple[int, str]:
    """Sort key of plans: by the number of the stage's folder, then by the start within it."""
    return int(plan.parts[-3].partition("-")[0]), plan.parts[-2]


@dataclass(frozen=True)
class ReplayLauncher(Launcher):
    """A Launcher that takes results from a recording; entries that were not recorded are MISSING_IN_TRACE."""

    recording: Recording
    overlaps = False

    def _starts(self, stage: str) -> Iterator[tuple[Path, Plan, list[Event]]]:
        for where, plan in self.recording.starts(stage):
            yield where, plan, read_journal(where / "journal.jsonl", len(plan.work))

    def timings(self, plan: Plan, folder: Path, on_event: OnEvent = ignore, on_found: OnFound = ignore) -> StageRun:
        found: dict[Problem, list[Timing]] = {}
        run = StageRun()
        one_process = plan.stage != FINALS or self.recording.finals_processes() == {0}
        for where, old_plan, journal in self._starts(plan.stage):
            if not one_process and old_plan.process != plan.process:
                continue
            for (problem, _), timing in self._found(old_plan, journal, where).items():
                found.setdefault(problem, []).append(timing)
        recorded = {(problem, one.name): one for problem, timings in found.items() for one in joined(timings)}
        for index, work in enumerate(plan.work):
            beside = ([VENDOR] if work.vendor else []) + ([AA_TEST] if work.again else [])
            for name in [name for _, name in work.entries] + beside:
                on_event(work.problem, End(index, name))
                if name == AA_TEST and (work.problem, AA_TEST) not in recorded:
                    continue  # recordings of older versions do not have it
                absent = Timing(work.problem, name, Status.MISSING_IN_TRACE, message="not in the recording")
                run.timings[work.problem, name] = recorded.get((work.problem, name), absent)
        on_found(run.timings)
        return run

    def _found(self, plan: Plan, journal: list[Event], where: Path) -> dict[Key, Timing]:
        """The timings of a start. One that crashed may have no trace; then the failures in its journal."""
        faults = []
        for profiler in self.recording.profilers_of(plan):
            try:
                return collect(plan, journal, profiler, where)
            except TraceError as fault:
                faults.append(fault)
        if any(isinstance(event, Finished) for event in journal):
            raise faults[0]
        return failures(plan, journal)

    def verdicts(self, plan: Plan, folder: Path, on_event: OnEvent = ignore) -> None:
        """In the order of the plan, up to the first right one where that is enough: checks of a run may have been made
        before its ranking was known."""
        recorded: dict[Key, list[Begin | End | Fail | Judged]] = {}
        for _, old_plan, journal in self._starts(VERIFY):
            for event in journal:
                if isinstance(event, (Begin, End, Fail, Judged)):
                    key = old_plan.work[event.work].problem, event.name
                    if isinstance(event, Begin):  # again, in another process
                        recorded.pop(key, None)
                    recorded.setdefault(key, []).append(event)
        for work in plan.work:
            stops = plan.stop_at_first_right and not workload_of(work.problem.kind).compares_configs(work.problem)
            for _, name in work.entries:
                events = recorded.get((work.problem, name), [])
                for heard in events:
                    on_event(work.problem, heard)
                judged = [event.ok for event in events if isinstance(event, Judged)]
                if stops and judged and all(judged):
                    break


def joined(timings: Iterable[Timing]) -> list[Timing]:
    """Merges the timings of several starts: one per finalist, with its samples concatenated in the order of starts.

    A finalist that failed in one start keeps the samples from the others.
    """
    found: dict[str, Timing] = {}
    for timing in timings:
        old = found.get(timing.name)
        if old is None or old.status != Status.OK:
            found[timing.name] = timing
        elif timing.status == Status.OK:
            found[timing.name] = replace(timing, samples_us=old.samples_us + timing.samples_us)
    return list(found.values())

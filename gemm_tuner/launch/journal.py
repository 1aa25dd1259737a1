"""The journal of a launcher: events as one JSON object per line, written as they happen.

Every line is validated when it is read, because a journal may be part of a recording from somebody else.
"""

from __future__ import annotations

import json
import time
from operator import methodcaller
from pathlib import Path
from typing import Any, TextIO, TypeAlias

import msgspec

from gemm_tuner.core.errors import UserError
from gemm_tuner.core.records import Problem, Status, Verdict, Verified
from gemm_tuner.system.documents import show
from gemm_tuner.system.input_files import printable, read_text
from gemm_tuner.system.json_records import Count, parse_json, record_of

MAX_JOURNAL_BYTES = 512 * 2**20


class _Event(msgspec.Struct, frozen=True, tag_field="event"):
    pass


class Process(_Event, frozen=True, tag="process"):
    """The first event. identity: of the launcher's process (``processes.identity``)."""

    identity: str


class DeviceUsed(_Event, frozen=True, tag="device"):
    """name: of the GPU. torch: its version."""

    name: str
    torch: str


class Reached(_Event, frozen=True, tag="reached"):
    """The launcher has reached one of MILESTONES, at a Unix time."""

    milestone: str
    unix_s: float


class Spent(_Event, frozen=True, tag="spent"):
    """How long a part of the work took the launcher, in all. part: one of OPENING, PREPARING or
    LAUNCHING."""

    part: str
    seconds: float


class Begin(_Event, frozen=True, tag="begin"):
    """A configuration is about to run for the first time. work: index in Plan.work."""

    work: Count
    name: str


class Called(_Event, frozen=True, tag="call"):
    """Call number ``n`` was made.

    symbols: its kernels, in order.
    flushes: number of flush kernels since the previous call; None in recordings of earlier versions.
    queued:  the GPU was busy until all of the call's kernels were in its queue.
    """

    n: Count
    work: Count
    name: str
    symbols: tuple[str, ...]
    warm: bool
    flushes: Count | None = None
    queued: bool = False


class Round(_Event, frozen=True, tag="round"):
    """A round of finals is about to begin, in which all configurations of a work run once."""

    work: Count
    number: Count


class End(_Event, frozen=True, tag="end"):
    """A configuration is finished."""

    work: Count
    name: str
    early_stopped: bool = False


class Ran(_Event, frozen=True, tag="ran"):
    """A configuration has run and waits to be compared with the others of its work."""

    work: Count
    name: str


class Fail(_Event, frozen=True, tag="fail"):
    """A configuration failed; with status ``crashed`` the launcher ends as well."""

    work: Count
    name: str
    status: Status
    message: str


class Judged(_Event, frozen=True, tag="verdict"):
    """The fields of a Verdict. Errors are infinite or NaN if the result is."""

    work: Count
    problem: Problem
    name: str
    ok: bool
    max_abs_error: float
    error_over_bound: float
    worst_element: tuple[Count, Count]
    message: str
    stable: bool = True
    how: Verified | None = None

    @classmethod
    def of(cls, work: int, verdict: Verdict) -> Judged:
        return cls(work, *(getattr(verdict, name) for name in cls.__struct_fields__[1:]))

    @property
    def verdict(self) -> Verdict:
        return Verdict(**{name: getattr(self, name) for name in self.__struct_fields__[1:]})


class Compiles(_Event, frozen=True, tag="compiles"):
    """How many kernels were compiled in the launcher, and how many were cache hits."""

    compiled: Count
    from_cache: Count


class Finished(_Event, frozen=True, tag="finished"):
    """The last event of a launcher that did not crash."""


# In order: the modules are imported, no other launcher is timing, the GPU is open, it is this launcher's turn,
# recording begins, the last kernel has ended.
MILESTONES = IMPORTED, ADMITTED, OPENED, TURN, READY, LAUNCHED = (
    "imported", "admitted", "opened", "turn", "ready", "launched",
)  # fmt: skip
# Parts of the time until OPENED, from TURN to READY, and from then to LAUNCHED.
OPENING = VENDOR_CALLS, LOADING, RECORDING = ("vendor library", "kernels loaded", "recording begins")
PREPARING = OTHERS_OPEN, SPIN_UP = ("others open", "spin-up")
LAUNCHING = OPERANDS, FIRST_CALLS, REST, ROUNDS = ("operands", "first calls", "rest", "rounds")

# Events of every configuration, which ``Journal.write`` writes and ``event_of`` reads in a tenth of the others' time.
FREQUENT = Begin, Called, Round, Ran, End
FREQUENT_BEGINS = '{"event":"'
CALL_BEGINS = FREQUENT_BEGINS + 'call",'
_FREQUENT = msgspec.json.Decoder(Begin | Called | Round | Ran | End)

Event: TypeAlias = (
    Process | DeviceUsed | Reached | Spent | Begin | Called | Round | Ran | End | Fail | Judged | Compiles | Finished
)


class Journal:
    """Writes events. ``begin``, ``end`` and ``round`` are flushed to the disk at once, so that after a crash the
    journal tells which configuration, or which round of finals, was running. Calls are buffered until the next of
    these."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def reach(self, milestone: str) -> None:
        """Writes ``Reached`` with the time of now."""
        self.write(Reached(milestone, time.time()))

    def write(self, event: Event) -> None:
        if isinstance(event, FREQUENT):
            self._stream.write(msgspec.json.encode(event).decode() + "\n")
        else:
            row = {"event": event.__struct_config__.tag, **msgspec.structs.asdict(event)}
            self._stream.write(json.dumps(row, default=methodcaller("to_dict")) + "\n")
        if not isinstance(event, Called):  # which is between launches, so without delay
            self._stream.flush()


def read_journal(path: Path, works: int | None = None) -> list[Event]:
    """The events in order; none if there is no file. A last line that is incomplete after a crash is ignored.

    works: number of works of the plan; events must refer to one of them.
    Raises UserError naming the line for an invalid event.
    """
    if not path.exists():
        return []
    lines = read_text(path, "journal", "JSON, one object a line", MAX_JOURNAL_BYTES).split("\n")
    events = []
    last_call = -1
    for number, line in enumerate(lines[:-1], 1):
        where = f"{printable(path)}, line {number}"
        event = event_of(line, where, works)
        if isinstance(event, Called):
            if event.n <= last_call:
                raise UserError(f"call {event.n} comes after call {last_call}", where=where)
            last_call = event.n
        events.append(event)
    return events


def event_of(line: str, where: str, works: int | None = None) -> Event:
    """The event in a line of a journal. Raises UserError for an invalid one."""
    event = _frequent_of(line)
    if event is None:
        row: Any = parse_json(line, "journal's line", where)
        if not isinstance(row, dict) or "event" not in row:
            raise UserError(f"{show(row)} is no event", where=where, accepted='{"event": ..., ...}')
        event = record_of(Event, row, where)  # type: ignore[arg-type]
    work = getattr(event, "work", -1)
    if works is not None and work >= works:
        raise UserError(f"work {work} is not in the plan", where=where, accepted=f"0 to {works - 1}")
    return event


def _frequent_of(line: str) -> Event | None:
    """A fast decoder for the FREQUENT events as ``Journal.write`` writes them; a screening has 100 000 calls. None for
    any other line, including invalid ones, which the general decoder reports."""
    if not line.startswith(FREQUENT_BEGINS):
        return None
    try:
        found: Event = _FREQUENT.decode(line)
        return found
    except (msgspec.MsgspecError, UnicodeEncodeError):
        return None

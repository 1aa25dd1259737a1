"""The events of a journal, each checked as it is read: a journal may come with a recording from a stranger."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from gemm_tuner.core.errors import UserError
from gemm_tuner.core.records import Status
from gemm_tuner.core.workload import problem_from_dict
from gemm_tuner.system.documents import LARGEST_INT, show
from gemm_tuner.system.input_files import printable, read_text
from gemm_tuner.system.json_records import parse_json

MAX_JOURNAL_BYTES = 512 * 2**20
_STATUSES = frozenset(status.value for status in Status)
Check = Callable[[Any], bool]


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value <= LARGEST_INT


def _is_text(value: Any) -> bool:
    return type(value) is str


def _is_flag(value: Any) -> bool:
    return type(value) is bool


def _is_number(value: Any) -> bool:
    """An error may be infinite or no number: the result was."""
    return type(value) is float or _is_count(value)


def _are_texts(value: Any) -> bool:
    return type(value) is list and all(type(one) is str for one in value)


def _is_place(value: Any) -> bool:
    return type(value) is list and len(value) == 2 and all(_is_count(one) for one in value)


def _is_status(value: Any) -> bool:
    return type(value) is str and value in _STATUSES


def _is_problem(value: Any) -> bool:
    try:
        problem_from_dict(value)
    except (ValueError, TypeError, AttributeError):
        return False
    return True


_OF: dict[str, Check] = {"work": _is_count, "name": _is_text}
EVENTS: dict[str, dict[str, Check]] = {
    "process": {"identity": _is_text},
    "begin": _OF,
    "call": {"n": _is_count, "symbols": _are_texts, "warm": _is_flag, **_OF},
    "round": {"work": _is_count, "number": _is_count},
    "end": _OF,
    "fail": {"status": _is_status, "message": _is_text, **_OF},
    "verdict": {
        "problem": _is_problem,
        "ok": _is_flag,
        "max_abs_error": _is_number,
        "error_over_bound": _is_number,
        "worst_element": _is_place,
        "message": _is_text,
        **_OF,
    },
    "compiles": {"compiled": _is_count, "from_cache": _is_count},
}
# Fields that an event may have beside those of EVENTS.
OPTIONAL: dict[str, Check] = {**_OF, "early_stopped": _is_flag, "stable": _is_flag, "flushes": _is_count}


def read_journal(path: Path, works: int | None = None) -> list[dict[str, Any]]:
    """The events in order; none where there is no file. A last line that a crash cut short is left out.

    works: how many works the plan has, for an event to name one of them.
    Raises UserError naming the line for an event that no launcher writes.
    """
    if not path.exists():
        return []
    lines = read_text(path, "journal", "JSON, one object a line", MAX_JOURNAL_BYTES).split("\n")
    events = []
    last_call = -1
    for number, line in enumerate(lines[:-1], 1):
        where = f"{printable(path)}, line {number}"
        event = parse_json(line, "journal's line", where)
        check_event(event, where, works)
        if event["event"] == "call":
            if event["n"] <= last_call:
                raise UserError(f"call {event['n']} comes after call {last_call}", where=where)
            last_call = event["n"]
        events.append(event)
    return events


def check_event(event: Any, where: str, works: int | None = None) -> None:
    """Raises UserError unless the value is an event with the fields of its kind. Other kinds are left alone."""
    if not isinstance(event, dict) or not _is_text(event.get("event")):
        raise UserError(f"{show(event)} is no event", where=where, accepted='{"event": ..., ...}')
    wanted = EVENTS.get(event["event"], {})
    for field, is_right in wanted.items():
        if field not in event or not is_right(event[field]):
            held = f"{field} is {show(event[field])}" if field in event else f"lacks {field}"
            raise UserError(f"the event {show(event['event'])} {held}", where=where)
    for field, is_right in OPTIONAL.items():
        if field in event and not is_right(event[field]):
            raise UserError(f"the event {show(event['event'])} {field} is {show(event[field])}", where=where)
    if works is not None and event.get("work", -1) >= works:
        raise UserError(f"work {event['work']} is not in the plan", where=where, accepted=f"0 to {works - 1}")

"""JSON that a person may hand over, read within bounds and into records, every field checked against its type.

What a record's fields may hold is said by its annotations, so that a record and its reader cannot drift apart.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import types
import typing
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

from gemm_tuner.core.errors import UserError
from gemm_tuner.core.records import Problem
from gemm_tuner.core.workload import problem_from_dict
from gemm_tuner.system.documents import LARGEST_INT, refuse_unknown, show
from gemm_tuner.system.input_files import printable, read_text

MAX_FILE_BYTES = 64 * 2**20
MAX_VALUES = 4_000_000
_WORDS = {str: "text", bool: "true or false", int: "a whole number of 64 bits", float: "a finite number"}

Record = TypeVar("Record")


def load_json(path: Path, what: str) -> Any:
    """The value in a JSON file. Raises UserError for one that cannot be read, is too large, or is no JSON.

    what: how a message names the file's role.
    """
    text = read_text(path, what, "JSON", MAX_FILE_BYTES)
    if text.count(",") + text.count("[") + text.count("{") > MAX_VALUES:
        accepted = f"up to {MAX_VALUES} values"
        raise UserError(f"the {what} holds too many values", where=printable(path), accepted=accepted)
    return parse_json(text, what, printable(path))


def parse_json(text: str, what: str, where: str) -> Any:
    """The value of a JSON text; a key given twice is refused. Raises UserError."""
    try:
        return json.loads(text, object_pairs_hook=_mapping)
    except json.JSONDecodeError as error:
        fault = f"the {what} is not whole JSON: {error.msg} (line {error.lineno}, column {error.colno})"
    except ValueError as error:  # a key twice, or more digits than Python reads
        fault = f"the {what} cannot be read: {error}"
    except RecursionError:
        fault = f"the values of the {what} are nested too deeply"
    raise UserError(fault, where=where, accepted="JSON")


def _mapping(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"key {show(twice)} is given twice")
    return found


def record_of(kind: type[Record], value: Any, where: str) -> Record:
    """A record of a dataclass from its fields; those with a default may be left out. Raises UserError."""
    if not isinstance(value, dict):
        raise UserError(f"is {show(value)} and not a mapping", where=where)
    fields: Any = kind
    hints = _hints(fields)
    refuse_unknown(value, tuple(hints), where)
    for name, (_, required) in hints.items():
        if required and name not in value:
            raise UserError(f"lacks {name}", where=where, accepted=", ".join(hints))
    return kind(**{name: typed(hints[name][0], value[name], where, name) for name in value})


@functools.cache
def _hints(kind: type[Any]) -> dict[str, tuple[Any, bool]]:
    """The type of each field of a dataclass, and whether it must be given."""
    hints = typing.get_type_hints(kind)
    missing = dataclasses.MISSING
    return {
        field.name: (hints[field.name], field.default is missing and field.default_factory is missing)
        for field in dataclasses.fields(kind)
    }


def typed(kind: Any, value: Any, where: str, name: str) -> Any:
    """A value of an annotation: plain scalars, Any, enums, records, problems by
    their kind, ``X | None``, tuple, list and dict of these.

    JSON lists become tuples where the annotation says so; numbers are finite. Raises UserError naming the field.
    """
    if kind is Any:
        return value
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        if value is None:
            return None
        return typed(next(one for one in inner if one is not type(None)), value, where, name)
    if origin in (tuple, list):
        return _sequence(origin, inner, value, where, name)
    if origin is dict:
        if not isinstance(value, dict):
            raise _wrong(name, value, "a mapping", where)
        return {key: typed(inner[1], one, where, f"{name}, {show(key)}") for key, one in value.items()}
    if isinstance(kind, type) and issubclass(kind, Enum):
        known = [one.value for one in kind]
        if value not in known:
            raise _wrong(name, value, ", ".join(map(str, known)), where)
        return kind(value)
    if kind is Problem:
        try:
            return problem_from_dict(value)
        except ValueError as error:
            raise UserError(str(error), where=f"{where}, {name}") from None
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return record_of(kind, value, f"{where}, {name}")
    return _scalar(kind, value, where, name)


def _sequence(origin: Any, inner: tuple[Any, ...], value: Any, where: str, name: str) -> Any:
    if not isinstance(value, list):
        raise _wrong(name, value, "a list", where)
    if origin is list or inner[1:] == (...,):
        kinds = [inner[0]] * len(value)
    else:
        kinds = list(inner)
        if len(value) != len(kinds):
            raise _wrong(name, value, f"a list of {len(kinds)}", where)
    return origin(
        typed(kind, one, where, f"{name} {at}") for at, (kind, one) in enumerate(zip(kinds, value, strict=True), 1)
    )


def _scalar(kind: Any, value: Any, where: str, name: str) -> Any:
    if kind is float and type(value) is int and abs(value) <= LARGEST_INT:
        return float(value)
    right = type(value) is kind
    if right and kind is float:
        right = math.isfinite(value)
    elif right and kind is int:
        right = abs(value) <= LARGEST_INT
    elif right and kind is str:
        right = value.isascii() or not any("\ud800" <= one <= "\udfff" for one in value)
    if not right:
        raise _wrong(name, value, _WORDS[kind], where)
    return value


def _wrong(name: str, value: Any, accepted: str, where: str) -> UserError:
    return UserError(f"{name} is {show(value)}", where=where, accepted=accepted)

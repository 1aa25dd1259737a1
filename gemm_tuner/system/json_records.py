"""Reads JSON files from users within bounds and decodes them into records with msgspec.

The annotations of a record's fields say which values are valid, so that a record and its reader cannot disagree.
"""

from __future__ import annotations

import dataclasses
import json
import re
import sys
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from gemm_tuner.core.errors import UserError
from gemm_tuner.core.records import Problem
from gemm_tuner.core.workload import problem_from_dict
from gemm_tuner.system.conversion import converted
from gemm_tuner.system.documents import LARGEST_INT, refuse_unknown, show
from gemm_tuner.system.input_files import printable, read_text

MAX_FILE_BYTES = 64 * 2**20
MAX_VALUES = 4_000_000
Record = TypeVar("Record")

# Number types for annotations of records: a plain int has no bound, and a plain float may be infinite.
Int = Annotated[int, Meta(ge=-LARGEST_INT, le=LARGEST_INT)]
Count = Annotated[int, Meta(ge=0, le=LARGEST_INT)]
Positive = Annotated[int, Meta(ge=1, le=LARGEST_INT)]
Finite = Annotated[float, Meta(ge=-sys.float_info.max, le=sys.float_info.max)]
NotNegative = Annotated[float, Meta(ge=0, le=sys.float_info.max)]
Above0 = Annotated[float, Meta(gt=0, le=sys.float_info.max)]

# msgspec's names of JSON types, and the names used in messages.
_WORDS = {
    "array": "a list", "object": "a mapping", "str": "text", "bool": "true or false",
    "int": "a whole number of 64 bits", "float": "a finite number", "null": "nothing",
}  # fmt: skip
_OF_TYPE: dict[str, type] = {
    "array": list, "object": dict, "str": str, "bool": bool, "int": int, "float": float, "null": type(None),
}  # fmt: skip
HALF = "holds half of a character, a surrogate without its other one"
_HALF_A_PAIR = re.compile(r"\\u[dD][89a-fA-F]")


def load_json(path: Path, what: str) -> Any:
    """The value in a JSON file. Raises UserError if the file cannot be read, is too large, or is not JSON.

    what: the role of the file in messages.
    """
    text = read_text(path, what, "JSON", MAX_FILE_BYTES)
    if text.count(",") + text.count("[") + text.count("{") > MAX_VALUES:
        accepted = f"up to {MAX_VALUES} values"
        raise UserError(f"the {what} holds too many values", where=printable(path), accepted=accepted)
    value = parse_json(text, what, printable(path))
    if _HALF_A_PAIR.search(text):
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise UserError(HALF, where=printable(path)) from None
    return value


def parse_json(text: str, what: str, where: str) -> Any:
    """The value of a JSON text. Raises UserError if it is not JSON or gives a key twice."""
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
    """Builds a dataclass, or a member of a union of msgspec Structs, from its fields; those with a default are
    optional.

    Fields of type Problem are decoded by their kind. Raises UserError naming the field, also for an unknown field.
    """
    try:
        record = converted(value, kind, dec_hook=_problem)
    except msgspec.ValidationError as error:
        raise _fault(str(error), value, where) from None
    except UnicodeEncodeError:  # in a key: msgspec compares these in UTF-8
        raise UserError(HALF, where=where) from None
    _refuse_unknown(value, record, where)
    return record


def _problem(kind: type, value: Any) -> Any:
    if kind is Problem:
        return problem_from_dict(value)
    raise NotImplementedError(kind)


def _refuse_unknown(value: Any, made: Any, where: str) -> None:
    """Raises UserError for a field that the dataclass does not have; msgspec would ignore it."""
    if isinstance(value, dict) and dataclasses.is_dataclass(made) and not hasattr(made, "to_dict"):
        refuse_unknown(value, tuple(field.name for field in dataclasses.fields(made)), where)
        for name, one in value.items():
            _refuse_unknown(one, getattr(made, name), f"{where}, {name}")
    elif isinstance(value, dict) and isinstance(made, dict):
        for key, one in value.items():
            _refuse_unknown(one, made.get(key), f"{where}, {show(key)}")
    elif isinstance(value, list) and value and isinstance(value[0], dict) and isinstance(made, (tuple, list)):
        for at, (one, other) in enumerate(zip(value, made, strict=True), 1):
            _refuse_unknown(one, other, f"{where} {at}")


def _fault(text: str, value: Any, where: str) -> UserError:
    """Translates a message of msgspec: ``Expected `int`, got `str` - at `$.a[0]``` becomes "a 1 is 'x'; accepted: a
    whole number"."""
    what, _, path = text.partition(" - at `$")
    wanted, _, got = what.partition(", got ")
    names: list[str] = []
    for key, index in re.findall(r"\.([^.\[\]`]+)|\[(\d+|\.\.\.)\]", path):
        if key:
            value, names = value[key], [*names, key]
        elif index == "...":  # msgspec does not tell which value of a mapping is meant
            fits = _OF_TYPE.get(got.strip("`"), object)
            key = next((name for name, one in value.items() if type(one) is fits), next(iter(value)))
            value, names[-1:] = value[key], [f"{' '.join(names[-1:])}, {show(key)}"]
        else:
            value, names[-1:] = value[int(index)], [f"{' '.join(names[-1:])} {int(index) + 1}"]
    if what.startswith("Object missing required field"):
        return UserError(f"lacks {what.split('`')[1]}", where=", ".join([where, *names]))
    if not names:
        return UserError(f"is {show(value)} and not a mapping", where=where)
    if not what.startswith(("Expected", "Invalid", "Number")):  # a message of a problem's own decoder
        return UserError(what, where=", ".join([where, *names]))
    return UserError(f"{names[-1]} is {show(value)}", where=", ".join([where, *names[:-1]]), accepted=_accepted(wanted))


def _accepted(wanted: str) -> str:
    """The accepted values of ``Expected `int | null` >= 0`` in words; "" if the message names none."""
    found = re.fullmatch(r"Expected `([a-z |]+)`(?: of length (\d+)| (>=|<=|>) (\S+))?", wanted)
    if found is None:
        return ""
    words = " or ".join(_WORDS.get(one, one) for one in found[1].split(" | "))
    if found[2]:
        return f"{words} of {found[2]}"
    bound = {">": "above", ">=": "not below"}.get(found[3] or "")
    return f"{words} {bound} {float(found[4]):g}" if bound and abs(float(found[4])) < LARGEST_INT else words

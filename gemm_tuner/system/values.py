"""Reads single values of an entry: whole numbers, factors and names. Errors say which values are accepted."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import Any

from gemm_tuner.core.errors import UserError
from gemm_tuner.system.documents import refuse_unknown, show

FACTOR_FORM = "a finite number that fp32 holds, such as 0.5"
_SMALLEST_FACTOR, _LARGEST_FACTOR = 2.0**-126, (2 - 2.0**-23) * 2.0**127  # of normal fp32 numbers


def did_you_mean(text: str, known: Iterable[str]) -> str:
    """A question "did you mean ...?" with the most similar known name; empty when none is similar."""
    near = difflib.get_close_matches(text[:60], known, 1)
    return f"did you mean {near[0]}?" if near else ""


def integer(entry: dict[Any, Any], key: str, where: str, low: int, high: int) -> int:
    """The value of ``key``, an integer from low to high. Raises UserError."""
    value = entry.get(key)
    if type(value) is int and low <= value <= high:
        return value
    accepted = f"an integer from {low} to {high}"
    if key not in entry:
        raise UserError(f"{key} is missing", where=where, accepted=accepted)
    hint = ""
    if isinstance(value, float) and value.is_integer():
        hint = f"write {int(value)}, without a fraction" if abs(value) < 2**63 else ""
    elif isinstance(value, str) and re.fullmatch("[0-9]{1,10}", value):
        hint = f"write {value}, without quotes"
    raise UserError(f"{key} is {show(value)}", where=where, accepted=accepted, hint=hint)


def is_factor(value: object) -> bool:
    """Whether a value is 0 or a number in the normal range of fp32."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return value == 0 or _SMALLEST_FACTOR <= abs(value) <= _LARGEST_FACTOR


def factor(entry: dict[Any, Any], key: str, where: str) -> float:
    """The value of ``key``, a number for ``is_factor``; -0 becomes 0. Raises UserError."""
    value = entry[key]
    if is_factor(value):
        return float(value) + 0.0
    hint = ""
    if isinstance(value, str) and (meant := _number_in(value)) is not None:
        hint = f"write {meant}, without quotes"
    raise UserError(f"{key} is {show(value)}", where=where, accepted=FACTOR_FORM, hint=hint)


def _number_in(text: str) -> str | None:
    """The number in a text, written so that YAML reads it as a number: YAML takes 1e-5 for text, but not 1.0e-05."""
    try:
        number = float(text)
    except ValueError:
        return None
    spelt = repr(number)
    return (spelt if "." in spelt else spelt.replace("e", ".0e")) if is_factor(number) else None


def choice(entry: dict[Any, Any], key: str, known: tuple[str, ...], where: str) -> str:
    """The value of ``key``, one of the known names. Raises UserError with the most similar one."""
    value = entry[key]
    if isinstance(value, str) and value in known:
        return value
    hint = did_you_mean(value, known) if isinstance(value, str) else ""
    raise UserError(f"{key} is {show(value)}", where=where, accepted=", ".join(known), hint=hint)


def exact_mapping(value: Any, keys: tuple[str, ...], where: str, optional: tuple[str, ...] = ()) -> dict[str, Any]:
    """The value, a mapping with exactly these keys, of which ``optional`` may be absent. Raises UserError."""
    if not isinstance(value, dict):
        raise UserError(f"is {show(value)} and not a mapping", where=where, accepted=", ".join(keys))
    refuse_unknown(value, keys, where)
    missing = [key for key in keys if key not in value and key not in optional]
    if missing:
        raise UserError(f"lacks {', '.join(missing)}", where=where, accepted=", ".join(keys))
    return value

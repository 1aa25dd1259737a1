"""Formats numbers and values for reports."""

from __future__ import annotations

from typing import Any

MISSING = "-"


def number(value: float | None, digits: int = 4) -> str:
    """The number with ``digits`` significant digits, in scientific notation below 1e-4 and from 1e7 on."""
    if value is None or value - value != 0:
        return MISSING
    if value and not 1e-4 <= abs(value) < 1e7:
        return f"{value:.{digits}g}"
    before = len(str(int(abs(value)))) if abs(value) >= 1 else 0
    return f"{value:,.{max(0, digits - before)}f}"


def whole(value: int) -> str:
    return f"{value:,}"


def words(value: Any) -> str:
    """A value of the header, device or notes as text; for a mapping, its entries with a known value."""
    if isinstance(value, dict):
        told = {key: words(one) for key, one in value.items()}
        return ", ".join(f"{key} {text}" for key, text in told.items() if text != MISSING) or MISSING
    if isinstance(value, (list, tuple)):
        between = " " if all(isinstance(one, (str, int, float)) for one in value) else ", "
        return between.join(words(one) for one in value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.10g}"
    return MISSING if value is None or value == "" else str(value)

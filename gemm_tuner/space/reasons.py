"""Formats the reasons for which sizes have no configuration."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

_COUNTS = re.compile(r"\b[0-9]+ of [0-9]+ say: ")


def reason_lines(reasons: Mapping[str, str]) -> Iterator[str]:
    """One line per distinct reason, with the first size that it applies to. reasons: reason by size; how many
    configurations say so may differ between sizes, and is that of the first."""
    sizes: dict[str, list[str]] = {}
    for size, reason in reasons.items():
        sizes.setdefault(_COUNTS.sub("", reason), []).append(size)
    for first, *others in sizes.values():
        more = f" and {len(others)} more" if others else ""
        yield f"{first}{more}: {reasons[first]}"

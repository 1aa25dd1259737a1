"""Formats the reasons for which sizes have no configuration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping


def reason_lines(reasons: Mapping[str, str]) -> Iterator[str]:
    """One line per distinct reason, with the first size that it applies to. reasons: reason by size."""
    sizes: dict[str, list[str]] = {}
    for size, reason in reasons.items():
        sizes.setdefault(reason, []).append(size)
    for reason, (first, *others) in sizes.items():
        more = f" and {len(others)} more" if others else ""
        yield f"{first}{more}: {reason}"

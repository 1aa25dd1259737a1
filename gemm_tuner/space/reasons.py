"""Why sizes have no configuration, for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping


def said_once(reasons: Mapping[str, str]) -> Iterator[str]:
    """A line for each reason, with the first size that it is of. reasons: by size."""
    sizes: dict[str, list[str]] = {}
    for size, reason in reasons.items():
        sizes.setdefault(reason, []).append(size)
    for reason, (first, *others) in sizes.items():
        more = f" and {len(others)} more" if others else ""
        yield f"{first}{more}: {reason}"

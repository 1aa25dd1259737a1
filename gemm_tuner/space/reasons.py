"""Formats the reasons for which sizes have no configuration, or configurations no time."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

_COUNTS = re.compile(r"\b[0-9]+ of [0-9]+ say: ")
MOST_OF_A_REASON = 300  # characters


def reason_lines(reasons: Mapping[str, str]) -> Iterator[str]:
    """One line per distinct reason, with the first size that it applies to. reasons: reason by size; how many
    configurations say so may differ between sizes, and is that of the first."""
    sizes: dict[str, list[str]] = {}
    for size, reason in reasons.items():
        sizes.setdefault(_COUNTS.sub("", reason), []).append(size)
    for first, *others in sizes.values():
        more = f" and {len(others)} more" if others else ""
        yield f"{first}{more}: {reasons[first]}"


def most_common(messages: Iterable[str]) -> tuple[int, str]:
    """(how often the most frequent message is there, ignoring differences in numbers; one line of it). (0, "") without
    any message."""
    said: dict[str, list[str]] = {}
    for text in filter(None, messages):
        said.setdefault(re.sub("[0-9]+", "0", text), []).append(text)
    most = max(said.values(), key=len, default=[])
    return len(most), _brief(most[0]) if most else ""


def _brief(message: str) -> str:
    """One line of a message. Of several lines the last one that is more than a caret, because Triton prints the source
    first; without the name of the exception."""
    lines = [line.strip() for line in message.splitlines() if line.strip(" ^\t")] or [message.strip()]
    name, colon, _ = lines[0].partition(":")
    return (f"{name}{colon} {lines[-1]}" if len(lines) > 1 else lines[0])[:MOST_OF_A_REASON]

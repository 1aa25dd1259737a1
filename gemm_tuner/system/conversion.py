"""Builds records from plain values and from JSON with msgspec, one thread at a time.

At the first value of a type msgspec stores what it knows of the type before that is complete, and runs Python code,
during which another thread may build the same type: that one reads memory that is not there, and the process dies.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

Kind = TypeVar("Kind")
_one_at_a_time = threading.RLock()


def converted(value: Any, kind: type[Kind], *, dec_hook: Callable[[type, Any], Any] | None = None) -> Kind:
    """``msgspec.convert``. Raises what it raises."""
    with _one_at_a_time:
        return msgspec.convert(value, kind, dec_hook=dec_hook)


def decoded(text: bytes | str, kind: Any) -> Any:
    """``msgspec.json.decode`` of a type. Raises what it raises."""
    with _one_at_a_time:
        return msgspec.json.decode(text, type=kind)

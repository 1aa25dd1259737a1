"""Hashable signatures of calls and configurations."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any


def signature(*args: Any) -> Hashable:
    """Types and shapes of tensors and arrays; other values unchanged."""
    return tuple((*_type_of(arg), tuple(getattr(arg, "shape", ()))) for arg in args)


def types(*args: Any) -> Hashable:
    """As ``signature``, without shapes."""
    return tuple(_type_of(arg) for arg in args)


def _type_of(arg: Any) -> tuple[Hashable, ...]:
    if hasattr(arg, "dtype") and hasattr(arg, "shape"):
        return (str(arg.dtype),)
    return type(arg).__name__, _hashable(arg)


def frozen(config: Mapping[str, Any]) -> Hashable:
    """A configuration as a hashable key."""
    return tuple((name, type(value).__name__, _hashable(value)) for name, value in config.items())


def _hashable(value: Any) -> Hashable:
    try:
        hash(value)
    except TypeError:
        return repr(value)
    found: Hashable = value
    return found

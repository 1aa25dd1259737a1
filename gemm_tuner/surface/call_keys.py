"""The keys of calls of an autotuned function; calls with equal keys share a result."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from types import ModuleType
from typing import Any

from gemm_tuner.core.errors import UserError
from gemm_tuner.kernels.expressions import Expression
from gemm_tuner.surface.tunables import is_tensor
from gemm_tuner.system.values import did_you_mean

Key = Sequence[str] | Callable[[dict[str, Any]], Hashable] | None


class CallKeys:
    """Computes the keys of calls.

    key:   names or expressions of arguments such as ``pow2(rows)``, to which the types of all tensors are added; or a
           function of all arguments by name; or None for all arguments except ``left_out``, with tensors represented by
           type, shape and strides.
    known: the function's arguments; empty if unknown. Raises UserError for another name.
    """

    def __init__(self, key: Key, known: Collection[str], left_out: Collection[str] = ()) -> None:
        self._function = key if callable(key) else None
        self._texts = None if key is None or callable(key) else [Expression.parse(one, "key") for one in key]
        self._left_out = frozenset(left_out)
        for where, names in (
            ("key", {name for text in self._texts or () for name in text.names}),
            ("do_not_specialize", self._left_out),
        ):
            for name in sorted(names):
                if known and name not in known:
                    hint = did_you_mean(name, known)
                    raise UserError(f"{name!r} is no argument", where=where, accepted=", ".join(known), hint=hint)

    def of(self, named: Mapping[str, Any]) -> Hashable:
        """The key of a call. named: its arguments by name."""
        if self._function is not None:
            found = self._function(dict(named))
            try:
                hash(found)
            except TypeError:
                return _identity(found)
            return found
        if self._texts is None:
            return tuple((name, _identity(one)) for name, one in named.items() if name not in self._left_out)
        values = [text.value(named) for text in self._texts if text.names <= named.keys()]
        return (*map(_identity, values), *(str(one.dtype) for one in named.values() if is_tensor(one)))


def _identity(value: Any, inside: tuple[int, ...] = (), objects: set[int] | None = None) -> Hashable:
    """A snapshot of everything in a value that a compiler may distinguish. Containers, dataclasses and objects are
    replaced by their content, which may change later. inside: ids of the enclosing containers, to end recursion.
    objects: ids of the objects whose content is in the snapshot already; another place of them has the id only."""
    objects = set() if objects is None else objects
    if is_tensor(value) or (hasattr(value, "dtype") and not isinstance(value, Hashable)):
        strides = value.stride() if callable(getattr(value, "stride", None)) else getattr(value, "strides", ())
        return (str(value.dtype), tuple(value.shape), tuple(strides))
    held = _held(value)
    if held is None:
        # 1, 1.0 and True are equal in Python, but different to a compiler.
        return (type(value).__name__, value) if isinstance(value, Hashable) else repr(value)
    if id(value) in inside:
        return "again"
    if _is_object(value):
        if id(value) in objects:
            return "object", id(value)
        objects.add(id(value))
    return tuple(_identity(one, (*inside, id(value)), objects) for one in held)


def _held(value: Any) -> Iterable[Any] | None:
    """The content of a container or object; None for a plain value or a callable."""
    if isinstance(value, (list, tuple)):
        return value
    if isinstance(value, Mapping):
        return value.items()
    if is_dataclass(value) and not isinstance(value, type):
        return (type(value), *((one.name, getattr(value, one.name)) for one in fields(value)))
    return (type(value), id(value), *vars(value).items()) if _is_object(value) else None


def _is_object(value: Any) -> bool:
    """Whether a value is equal to itself only and its content may change; a module's has no end."""
    kind: Any = type(value)
    plain = kind.__hash__ is object.__hash__ and hasattr(value, "__dict__")
    return plain and not (callable(value) or is_dataclass(value) or isinstance(value, ModuleType))

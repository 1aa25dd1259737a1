"""The keys of calls of an autotuned function; calls with equal keys share a result."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence, Set
from dataclasses import fields, is_dataclass
from functools import partial
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
        self._counters = Counters()
        for where, names in (
            ("key", {name for text in self._texts or () for name in text.names}),
            ("do_not_specialize", self._left_out),
        ):
            for name in sorted(names):
                if known and name not in known:
                    hint = did_you_mean(name, known)
                    raise UserError(f"{name!r} is no argument", where=where, accepted=", ".join(known), hint=hint)

    def note_counters(self, named: Mapping[str, Any]) -> list[str]:
        """Before a call with a new key is tuned: the attributes of its objects that turn out to be counters or clocks,
        which are no part of keys from now on."""
        return self._counters.note(named.values())

    def after_tuning(self, named: Mapping[str, Any]) -> None:
        """Calls of the tuning itself are not counted."""
        self._counters.begin_from(named.values())

    def of(self, named: Mapping[str, Any]) -> Hashable:
        """The key of a call. named: its arguments by name."""
        _identity = partial(identity, counters=self._counters.found)
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


# An attribute that grew in so many new keys in a row, by the same small step or as a float, is a counter or a clock.
GROWN, MOST_STEP = 2, 16
Counter = tuple[int, str]


class Counters:
    """found: (id of an object, name) of attributes that grow from call to call."""

    def __init__(self) -> None:
        self.found: set[Counter] = set()
        self._last: dict[Counter, tuple[float, float, int]] = {}  # value, step, times grown

    def note(self, values: Iterable[Any]) -> list[str]:
        """The names of those that this call shows. To be told of every call with a new key."""
        new = []
        for one in _objects_in(values):
            for name, value in vars(one).items():
                place, is_number = (id(one), name), type(value) in (int, float)
                if is_number and place not in self.found and self._has_grown(place, value):
                    self.found.add(place)
                    new.append(f"{type(one).__name__}.{name}")
        return new

    def begin_from(self, values: Iterable[Any]) -> None:
        """What grows is compared with its present value."""
        for one in _objects_in(values):
            for name, value in vars(one).items():
                if (known := self._last.get((id(one), name))) and type(value) in (int, float):
                    self._last[id(one), name] = value, *known[1:]

    def _has_grown(self, place: Counter, value: float) -> bool:
        last, step, times = self._last.get(place, (value, 0.0, 0))
        grown = value - last
        alike = grown > 0 and (type(value) is float or (grown < MOST_STEP and grown == (step or grown)))
        times = times + 1 if alike else 0
        self._last[place] = value, grown if alike else 0.0, times
        return times >= GROWN


def _objects_in(values: Iterable[Any]) -> list[Any]:
    """The objects that these values are or hold, whose attributes may change."""
    left, found = list(values), dict[int, Any]()
    while left:
        one = left.pop()
        held = None if is_tensor(one) or id(one) in found else _held(one)
        if held is not None:
            found[id(one)] = one
            left.extend(held)
    return [one for one in found.values() if _is_object(one)]


def identity(
    value: Any, counters: Set[Counter] = frozenset(), inside: tuple[int, ...] = (), objects: set[int] | None = None
) -> Hashable:
    """A snapshot of everything in a value that a compiler may distinguish. Containers, dataclasses and objects are
    replaced by their content, which may change later. counters: attributes that are left out. inside: ids of the
    enclosing containers, to end recursion. objects: ids of the objects whose content is in the snapshot already;
    another place of them has the id only."""
    objects = set() if objects is None else objects
    if is_tensor(value) or (hasattr(value, "dtype") and not isinstance(value, Hashable)):
        strides = value.stride() if callable(getattr(value, "stride", None)) else getattr(value, "strides", ())
        return (str(value.dtype), tuple(value.shape), tuple(strides))
    held = _held(value, counters)
    if held is None:
        # 1, 1.0 and True are equal in Python, but different to a compiler.
        return (type(value).__name__, value) if isinstance(value, Hashable) else repr(value)
    if id(value) in inside:
        return "again"
    if _is_object(value):
        if id(value) in objects:
            return "object", id(value)
        objects.add(id(value))
    return tuple(identity(one, counters, (*inside, id(value)), objects) for one in held)


def _held(value: Any, counters: Set[Counter] = frozenset()) -> Iterable[Any] | None:
    """The content of a container or object, without counters; None for a plain value or a callable."""
    if isinstance(value, (list, tuple)):
        return value
    if isinstance(value, Mapping):
        return value.items()
    if is_dataclass(value) and not isinstance(value, type):
        return (type(value), *((one.name, getattr(value, one.name)) for one in fields(value)))
    if not _is_object(value):
        return None
    attributes = (item for item in vars(value).items() if (id(value), item[0]) not in counters)
    return (type(value), id(value), *attributes)


def _is_object(value: Any) -> bool:
    """Whether a value is equal to itself only and its content may change; a module's has no end."""
    kind: Any = type(value)
    plain = kind.__hash__ is object.__hash__ and hasattr(value, "__dict__")
    return plain and not (callable(value) or is_dataclass(value) or isinstance(value, ModuleType))

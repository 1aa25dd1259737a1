"""Which calls of an autotuned function share a result: by all arguments, by some of them, or by buckets."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from typing import Any

from gemm_tuner.core.errors import UserError
from gemm_tuner.kernels.expressions import Expression
from gemm_tuner.surface.tunables import is_tensor
from gemm_tuner.system.values import did_you_mean

Key = Sequence[str] | Callable[[dict[str, Any]], Hashable] | None


class CallKeys:
    """Keys of calls.

    key: names of arguments, or expressions of them such as ``pow2(rows)``, to which the types of all tensors are added;
         a function of all arguments by name; None takes all arguments but ``left_out``, tensors by type, shape and
         strides.
    known: the function's arguments; empty where these cannot be told. Raises UserError for a name that is none.
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
        """Of the arguments of a call by name."""
        if self._function is not None:
            return self._function(dict(named))
        if self._texts is None:
            return tuple((name, _identity(one)) for name, one in named.items() if name not in self._left_out)
        values = [text.value(named) for text in self._texts if text.names <= named.keys()]
        return (*map(_identity, values), *(str(one.dtype) for one in named.values() if is_tensor(one)))


def _identity(value: Any) -> Hashable:
    if is_tensor(value):
        strides = value.stride() if callable(getattr(value, "stride", None)) else ()
        return (str(value.dtype), tuple(value.shape), tuple(strides))
    if isinstance(value, (list, tuple)):
        return tuple(_identity(one) for one in value)
    if isinstance(value, Mapping):
        return tuple((name, _identity(one)) for name, one in value.items())
    # 1, 1.0 and True are equal, and other arguments to a compiler.
    return (type(value).__name__, value) if isinstance(value, Hashable) else repr(value)

"""What a tuned result depends on, as text: the source and closure of functions, values, and the machine."""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
import textwrap
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from importlib import metadata
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

from gemm_tuner.surface.used_globals import PLAIN, function_under, used

VERSIONS = ("torch", "triton", "tilelang", "nvidia-cutlass-dsl")


class NoFingerprint(Exception):
    """A value whose effect on a result cannot be told from its content."""


@dataclass(frozen=True)
class Trail:
    """path: the containers and functions that a value is part of. uses, numbers: functions that others use, which are
    described once each, after the value: calls may go in circles, and deeper than Python recurses."""

    path: tuple[int, ...] = ()
    uses: list[Any] = field(default_factory=list)
    numbers: dict[int, int] = field(default_factory=dict)

    def into(self, value: Any) -> Trail:
        return Trail((*self.path, id(value)), self.uses, self.numbers)

    def used(self, value: Any) -> Any:
        """A function by its number, another value as it is."""
        if function_under(value) is None:
            return _of(value, self)
        if id(value) not in self.numbers:
            self.numbers[id(value)] = len(self.uses)
            self.uses.append(value)
        return ["uses", self.numbers[id(value)]]


def of(value: Any) -> str:
    """Equal for values that a tuned result cannot tell apart, also in another process.

    Functions: their source, closure, defaults, and the same of all that they use (``used_globals``). Tensors: type,
    shape and strides. Raises NoFingerprint naming the value.
    """
    trail = Trail()
    found = [_of(value, trail)]
    while len(found) <= len(trail.uses):
        found.append(_of(trail.uses[len(found) - 1], Trail((), trail.uses, trail.numbers)))
    return hashlib.sha256(json.dumps(found).encode()).hexdigest()


def source_of(function: Any) -> str:
    """The text of a function with its decorators, "" where Python cannot find it."""
    under = function_under(function)
    try:
        return textwrap.dedent(inspect.getsource(under)) if under else ""
    except (OSError, TypeError):
        return ""


def machine() -> dict[str, str]:
    """The versions of what compiles, and the GPU."""
    from gemm_tuner import __version__

    found = {"gemm-tuner": __version__}
    for name in VERSIONS:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    if "torch" in found:
        import torch

        found["device"] = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    return found


def _of(value: Any, trail: Trail) -> Any:
    """A JSON value; a second look at what this is part of ends there."""
    if isinstance(value, PLAIN):
        return [type(value).__name__, repr(value)]
    if id(value) in trail.path:
        return ["again", trail.path.index(id(value))]
    inside = trail.into(value)
    if isinstance(value, Mapping):
        return ["mapping", sorted([_of(key, inside), _of(one, inside)] for key, one in value.items())]
    if isinstance(value, Sequence):
        return [type(value).__name__, [_of(one, inside) for one in value]]
    if isinstance(value, Set):
        return ["set", sorted(_of(one, inside) for one in value)]
    return _of_named(value) or _of_object(value, inside)


def _of_named(value: Any) -> list[Any] | None:
    """What is known by a name and a few facts."""
    if isinstance(value, Enum):
        return ["enum", type(value).__qualname__, value.name]
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        strides = value.stride() if callable(getattr(value, "stride", None)) else ()
        return ["tensor", str(value.dtype), [str(one) for one in value.shape], list(strides)]
    if isinstance(value, ModuleType):
        return ["module", value.__name__, str(getattr(value, "__version__", ""))]
    if isinstance(value, type):
        return ["type", value.__module__, value.__qualname__]
    if isinstance(value, BuiltinFunctionType):
        return ["builtin", value.__module__, value.__qualname__]
    return None


def _of_object(value: Any, inside: Trail) -> Any:
    if isinstance(value, functools.partial):
        return ["partial", _of(value.func, inside), _of(value.args, inside), _of(value.keywords, inside)]
    if (function := function_under(value)) is not None:
        return _of_function(function, inside)
    if is_dataclass(value):
        return [type(value).__qualname__, [[one.name, _of(getattr(value, one.name), inside)] for one in fields(value)]]
    if hasattr(value, "all_kwargs"):
        return ["triton.Config", _of(value.all_kwargs(), inside), _of(getattr(value, "pre_hook", None), inside)]
    text = repr(value)
    if " at 0x" in text:
        raise NoFingerprint(f"a {type(value).__name__} says nothing of its content")
    return [type(value).__qualname__, text]


def _of_function(function: FunctionType, inside: Trail) -> Any:
    code, trail = function.__code__, inside.into(function)
    own = {name: trail.used(one) for name, one in used(function).items()}
    closure = [
        [name, _of(cell.cell_contents, trail)]
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True)
        if _is_filled(cell)
    ]
    # Python finds the whole line of a lambda, on which there may be others.
    source = source_of(function) if function.__name__ != "<lambda>" else ""
    text = source or _code(code)
    defaults = _of([function.__defaults__, function.__kwdefaults__], trail)
    return ["function", function.__qualname__, text, closure, defaults, own]


def _code(code: CodeType) -> list[Any]:
    constants = [_code(one) if isinstance(one, CodeType) else repr(one) for one in code.co_consts]
    return [code.co_code.hex(), code.co_names, code.co_varnames, constants]


def _is_filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:
        return False

"""Fingerprints of everything a tuned result depends on: sources and closures of functions, values, and the machine."""

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
    """A value for which no fingerprint can be computed."""


@dataclass(frozen=True)
class Trail:
    """The state of a traversal. path: ids of the enclosing containers and functions. uses, numbers: functions that
    others use; each is described once, after the value, because call graphs may be cyclic and deeper than Python's
    recursion limit."""

    path: tuple[int, ...] = ()
    uses: list[Any] = field(default_factory=list)
    numbers: dict[int, int] = field(default_factory=dict)

    def into(self, value: Any) -> Trail:
        return Trail((*self.path, id(value)), self.uses, self.numbers)

    def used(self, value: Any) -> Any:
        """The number of a function; other values unchanged."""
        if function_under(value) is None:
            return _of(value, self)
        if id(value) not in self.numbers:
            self.numbers[id(value)] = len(self.uses)
            self.uses.append(value)
        return ["uses", self.numbers[id(value)]]


def of(value: Any) -> str:
    """The fingerprint of a value, equal in every process for values that are equivalent for a tuned result.

    Functions: source, closure, defaults, and the same for everything they use (``used_globals``). Tensors: type, shape
    and strides. Raises NoFingerprint naming the value.
    """
    trail = Trail()
    found = [_of(value, trail)]
    while len(found) <= len(trail.uses):
        found.append(_of(trail.uses[len(found) - 1], Trail((), trail.uses, trail.numbers)))
    return hashlib.sha256(json.dumps(found).encode()).hexdigest()


def source_of(function: Any) -> str:
    """The source of a function with its decorators; "" if Python cannot find it."""
    under = function_under(function)
    try:
        return textwrap.dedent(inspect.getsource(under)) if under else ""
    except (OSError, TypeError):
        return ""


def machine() -> dict[str, str]:
    """The versions of compilers and libraries, and the GPU."""
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
    """A JSON value; recursion ends at values that are part of themselves."""
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
    """The description of values that are identified by a name and a few facts; None for others."""
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
    # Python returns the whole line of a lambda, which may contain others.
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

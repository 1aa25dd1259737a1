"""What a tuned result depends on, as text: the source and closure of functions, values, and the machine."""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
import textwrap
from collections.abc import Mapping, Sequence, Set
from dataclasses import fields, is_dataclass
from enum import Enum
from importlib import metadata
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

# Where a decorated function keeps the one below: functools, triton.jit, tilelang.jit.
INNER = ("__wrapped__", "fn", "func", "orig_func")
PLAIN = (bool, int, float, complex, str, bytes, type(None))
VERSIONS = ("torch", "triton", "tilelang", "nvidia-cutlass-dsl")


class NoFingerprint(Exception):
    """A value whose effect on a result cannot be told from its content."""


def of(value: Any) -> str:
    """Equal for values that a tuned result cannot tell apart, also in another process.

    Functions: their source, closure, defaults, and what they use of their module. Tensors: type, shape and strides.
    Raises NoFingerprint naming the value.
    """
    return hashlib.sha256(json.dumps(_of(value, ())).encode()).hexdigest()


def function_under(function: Any) -> FunctionType | None:
    """The Python function under decorators, None for what is none."""
    seen: list[Any] = []
    while not isinstance(function, FunctionType):
        if isinstance(function, functools.partial):
            function = function.func
            continue
        inner = next((getattr(function, name, None) for name in INNER if name in _attributes(function)), None)
        if inner is None or any(inner is one for one in seen):
            return None
        seen.append(inner)
        function = inner
    unwrapped: FunctionType = inspect.unwrap(function)
    return unwrapped


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


def _attributes(value: Any) -> Set[str]:
    """Names that the object or its class hold: asking a proxy by getattr may answer anything."""
    slots = {name for kind in type(value).__mro__ for name in kind.__dict__}
    return slots | set(getattr(value, "__dict__", {}))


def _of(value: Any, path: tuple[int, ...]) -> Any:
    """A JSON value. path: the containers and functions that this is part of; a second look at one ends there."""
    if isinstance(value, PLAIN):
        return [type(value).__name__, repr(value)]
    if id(value) in path:
        return ["again", path.index(id(value))]
    inside = (*path, id(value))
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


def _of_object(value: Any, inside: tuple[int, ...]) -> Any:
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


def _of_function(function: FunctionType, inside: tuple[int, ...]) -> Any:
    code = function.__code__
    names = _global_names(code)
    uses = {name: function.__globals__[name] for name in sorted(names) if name in function.__globals__}
    own = {
        name: _used(one, (*inside, id(function)))
        for name, one in uses.items()
        if isinstance(one, PLAIN) or getattr(function_under(one), "__module__", None) == function.__module__
    }
    closure = [
        [name, _of(cell.cell_contents, (*inside, id(function)))]
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True)
        if _is_filled(cell)
    ]
    # Python finds the whole line of a lambda, on which there may be others.
    source = source_of(function) if function.__name__ != "<lambda>" else ""
    text = source or _code(code)
    defaults = _of([function.__defaults__, function.__kwdefaults__], (*inside, id(function)))
    return ["function", function.__qualname__, text, closure, defaults, own]


def _code(code: CodeType) -> list[Any]:
    constants = [_code(one) if isinstance(one, CodeType) else repr(one) for one in code.co_consts]
    return [code.co_code.hex(), code.co_names, code.co_varnames, constants]


def _used(value: Any, path: tuple[int, ...]) -> Any:
    function = function_under(value)
    if function is not None and id(function) in path:
        return ["again", function.__qualname__]
    return _of(value, path)


def _global_names(code: CodeType) -> set[str]:
    """Those of nested functions, too."""
    return set(code.co_names).union(*(_global_names(one) for one in code.co_consts if isinstance(one, CodeType)))


def _is_filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:
        return False

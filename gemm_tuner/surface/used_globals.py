"""What a function uses of its module and of others that may be edited: functions and plain values."""

from __future__ import annotations

import ast
import functools
import inspect
import sysconfig
from collections.abc import Iterator, Sequence, Set
from pathlib import Path
from types import CodeType, FunctionType, MappingProxyType, ModuleType
from typing import Any

# Where a decorated function keeps the one below: functools, triton.jit, tilelang.jit.
INNER = ("__wrapped__", "fn", "func", "orig_func")
PLAIN = (bool, int, float, complex, str, bytes, type(None))
# Others may be long, or do something when they are read.
CONTAINERS = (list, tuple, set, frozenset)
CHANGES = ("append", "extend", "insert", "add", "update", "setdefault", "pop", "popitem", "remove", "discard", "clear")
# Packages that a fingerprint has by their versions, wherever they lie.
BY_VERSION = ("gemm_tuner", "torch", "triton", "tilelang", "cutlass")
INSTALLED = ("site-packages", "dist-packages")


def used(function: FunctionType) -> dict[str, Any]:
    """By name what counts of what it and its nested functions name: functions of its module and of those that are not
    installed, plain values and containers of both, also as attributes of such modules. What a function imports in its
    body is not among them, nor a container that functions of the module fill: a register or a cache."""
    names = sorted(_names(function.__code__))
    held = {name: function.__globals__[name] for name in names if name in function.__globals__}
    filled = _filled(function.__code__.co_filename)
    found = {name: one for name, one in held.items() if name not in filled and _counts(one, function.__module__, ())}
    for name, one in held.items():
        if isinstance(one, ModuleType):
            found.update(_of_module(name, one, names, ()))
    return found


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


def _attributes(value: Any) -> Set[str]:
    """Names that the object or its class hold: asking a proxy by getattr may answer anything."""
    slots = {name for kind in type(value).__mro__ for name in kind.__dict__}
    return slots | set(getattr(value, "__dict__", {}))


def _names(code: CodeType) -> set[str]:
    """Globals and attributes, those of nested functions, too."""
    return set(code.co_names).union(*(_names(one) for one in code.co_consts if isinstance(one, CodeType)))


def _counts(value: Any, module: str, path: tuple[int, ...]) -> bool:
    """path: the containers that this is part of."""
    if isinstance(value, PLAIN) or id(value) in path:
        return True
    inside = (*path, id(value))
    if isinstance(value, (dict, MappingProxyType)):
        return all(_counts(one, module, inside) for pair in value.items() for one in pair)
    if isinstance(value, CONTAINERS):
        return all(_counts(one, module, inside) for one in value)
    if isinstance(value, (ModuleType, type)):
        return False
    if type(value).__name__ == "constexpr":
        return _counts(value.value, module, inside)
    function = function_under(value)
    return function is not None and (function.__module__ == module or _may_change(function))


def _of_module(
    label: str, module: ModuleType, names: Sequence[str], path: tuple[int, ...]
) -> Iterator[tuple[str, Any]]:
    """Those attributes that the function may mean: its code has their names."""
    places = [getattr(module, "__file__", None), *getattr(module, "__path__", ())]
    if id(module) in path or not _is_own(module.__name__, next(filter(None, places), "<frozen>")):
        return
    held, filled = vars(module), _filled(str(getattr(module, "__file__", "")))
    for name in names:
        one = held.get(name)
        if isinstance(one, ModuleType):
            yield from _of_module(f"{label}.{name}", one, names, (*path, id(module)))
        elif name in held and name not in filled and _counts(one, module.__name__, ()):
            yield f"{label}.{name}", one


@functools.cache
def _filled(file: str) -> frozenset[str]:
    """Names that functions of a module's file change in place; none where the file cannot be read."""
    try:
        tree = ast.parse(Path(file).read_bytes())
    except (OSError, SyntaxError, ValueError):
        return frozenset()
    functions = [one for one in ast.walk(tree) if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef))]
    return frozenset(_changed(node) for one in functions for node in ast.walk(one)) - {""}


def _changed(node: ast.AST) -> str:
    """The name that this changes in place, or ""."""
    target: ast.AST | None = None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CHANGES:
        target = node.func.value
    elif isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
        target = node.value
    return target.id if isinstance(target, ast.Name) else ""


def _may_change(function: FunctionType) -> bool:
    return _is_own(function.__module__ or "", function.__code__.co_filename)


@functools.cache
def _is_own(module: str, file: str) -> bool:
    """Whether it is of the user: not of Python or of an installed package, whose versions tell what they are."""
    if module.partition(".")[0] in BY_VERSION or file.startswith("<frozen"):
        return False
    path = Path(file)
    return not (set(INSTALLED) & set(path.parts) or path.is_relative_to(sysconfig.get_path("stdlib")))

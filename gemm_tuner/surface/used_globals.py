"""Finds the functions and plain values that a function uses from its module and from other modules of the user."""

from __future__ import annotations

import ast
import functools
import inspect
import sysconfig
from collections.abc import Iterator, Sequence, Set
from pathlib import Path
from types import CodeType, FunctionType, MappingProxyType, ModuleType
from typing import Any

# Attributes in which decorators keep the decorated function: functools, triton.jit, tilelang.jit.
INNER = ("__wrapped__", "fn", "func", "orig_func")
PLAIN = (bool, int, float, complex, str, bytes, type(None))
# Other containers may be large, or execute code when they are read.
CONTAINERS = (list, tuple, set, frozenset)
CHANGES = ("append", "extend", "insert", "add", "update", "setdefault", "pop", "popitem", "remove", "discard", "clear")
# Packages that fingerprints identify by version, wherever they are installed.
BY_VERSION = ("gemm_tuner", "torch", "triton", "tilelang", "cutlass")
INSTALLED = ("site-packages", "dist-packages")


def used(function: FunctionType) -> dict[str, Any]:
    """The relevant globals that a function and its nested functions use, by name: functions, plain values and
    containers from its module and from modules that are not installed packages, also as attributes of such modules.

    Not included are imports inside function bodies, and containers that functions of the module modify, such as
    registries and caches.
    """
    names = sorted(_names(function.__code__))
    held = {name: function.__globals__[name] for name in names if name in function.__globals__}
    filled = _filled(function.__code__.co_filename)
    found = {name: one for name, one in held.items() if name not in filled and _counts(one, function.__module__, ())}
    for name, one in held.items():
        if isinstance(one, ModuleType):
            found.update(_of_module(name, one, names, ()))
    return found


def function_under(function: Any) -> FunctionType | None:
    """The Python function below decorators; None if there is none."""
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
    """The names that the object or its class defines; getattr on a proxy object may succeed for any name."""
    slots = {name for kind in type(value).__mro__ for name in kind.__dict__}
    return slots | set(getattr(value, "__dict__", {}))


def _names(code: CodeType) -> set[str]:
    """The names of globals and attributes, including those of nested functions."""
    return set(code.co_names).union(*(_names(one) for one in code.co_consts if isinstance(one, CodeType)))


def _counts(value: Any, module: str, path: tuple[int, ...]) -> bool:
    """Whether a value is relevant. path: ids of the enclosing containers."""
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
    """The attributes of a module that the function may use, because its code contains their names."""
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
    """The names that functions in a module's file modify in place; empty if the file cannot be read."""
    try:
        tree = ast.parse(Path(file).read_bytes())
    except (OSError, SyntaxError, ValueError):
        return frozenset()
    functions = [one for one in ast.walk(tree) if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef))]
    return frozenset(_changed(node) for one in functions for node in ast.walk(one)) - {""}


def _changed(node: ast.AST) -> str:
    """The name that a statement modifies in place; "" for none."""
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
    """Whether a module belongs to the user, and not to Python or an installed package (which versions identify)."""
    if module.partition(".")[0] in BY_VERSION or file.startswith("<frozen"):
        return False
    path = Path(file)
    return not (set(INSTALLED) & set(path.parts) or path.is_relative_to(sysconfig.get_path("stdlib")))

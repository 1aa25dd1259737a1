"""Finds which parameters a Triton kernel writes to, and which it surely does not, from its source."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

STORES = ("store", "scatter", "store_tensor_descriptor", "_experimental_descriptor_store", "atomic_store", "atomic_add",
          "atomic_max", "atomic_min", "atomic_and", "atomic_or", "atomic_xor", "atomic_xchg", "atomic_cas")  # fmt: skip
# Their first parameter, where it is given by name.
POINTERS = ("pointer", "desc", "desc_pointer")

TRITON = ("tl", "language", "triton.language")
# Of Triton's own functions, those that may write through a pointer that they are given.
MAY_WRITE = ("inline_asm_elementwise", *STORES)
# Methods of descriptors and of numbers.
OF_PARAMETERS = (*STORES, "load", "gather", "to")
ARITHMETIC = ("tl.math", "libdevice")
HARMLESS = ("range", "min", "max", "len", "abs", "int", "float", "bool", "print", "isinstance")


def stored_parameters(source: str, name: str) -> tuple[str, ...]:
    """The parameters in pointers of the kernel's stores and atomic operations, in order; the tensors among them are
    outputs. Stores in called functions are not found. Empty if the source does not define the function."""
    function = _function(source, name)
    if function is None:
        return ()
    wanted = {part for node in ast.walk(function) for part in _stored_through(node)}
    seen = _reached(function, wanted)
    return tuple(one for one in _parameters(function) if one in seen)


def unwritten_parameters(source: str, name: str) -> frozenset[str]:
    """The parameters that the kernel surely does not write through: they reach no store, and no function that is not
    Triton's own. Empty if the source does not define the function."""
    function = _function(source, name)
    if function is None:
        return frozenset()
    parameters = _parameters(function)
    assigned = [one for node in ast.walk(function) for one in _assigned(node)]
    values = {target for target, _ in assigned} - {target for target, value in assigned if _may_be_an_object(value)}
    known = values - set(parameters), set(parameters)
    wanted = {part for node in ast.walk(function) for part in (*_stored_through(node), *_handed_on(node, *known))}
    return frozenset(parameters) - _reached(function, wanted)


@lru_cache(maxsize=256)
def inputs_of(function: Any) -> frozenset[str]:
    """``unwritten_parameters`` of a Python function; empty where its source cannot be had."""
    try:
        return unwritten_parameters(textwrap.dedent(inspect.getsource(function)), function.__name__)
    except (OSError, TypeError, SyntaxError, ValueError):
        return frozenset()


def _function(source: str, name: str) -> ast.FunctionDef | None:
    functions = [one for one in ast.walk(ast.parse(source)) if isinstance(one, ast.FunctionDef) and one.name == name]
    return functions[0] if functions else None


def _parameters(function: ast.FunctionDef) -> list[str]:
    arguments = function.args
    return [one.arg for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]


def _reached(function: ast.FunctionDef, wanted: set[str]) -> set[str]:
    """These names, and those that their values are made of."""
    made_of: dict[str, set[str]] = {}
    for node in ast.walk(function):
        for target, value in _assigned(node):
            made_of.setdefault(target, set()).update(_pointer_names(value))
    seen: set[str] = set()
    while wanted - seen:
        one = (wanted - seen).pop()
        seen.add(one)
        wanted = wanted | made_of.get(one, set())
    return seen


def _may_be_an_object(node: ast.expr) -> bool:
    """Whether a value may have methods of the user's own: it is made by a function that is not Triton's."""
    calls = (one.func for one in ast.walk(node) if isinstance(one, ast.Call))
    return any(isinstance(one, ast.Name) and one.id not in HARMLESS for one in calls)


def _handed_on(node: ast.AST, values: set[str], parameters: set[str]) -> set[str]:
    """The names in the arguments of a call of a function that may write through them. values: names of tensors and
    numbers, whose methods write nothing but what ``_stored_through`` finds. Nor do OF_PARAMETERS; a parameter may be an
    object of the user's, too."""
    if not isinstance(node, ast.Call):
        return set()
    if isinstance(node.func, ast.Name):
        is_harmless = node.func.id in HARMLESS
    elif isinstance(node.func, ast.Attribute):
        owner = ast.unparse(node.func.value)
        first = next((one.id for one in ast.walk(node.func.value) if isinstance(one, ast.Name)), "")
        is_value = first in values or _is_value(node.func.value) or owner in ARITHMETIC
        is_value = is_value or (first in parameters and node.func.attr in OF_PARAMETERS)
        is_harmless = node.func.attr not in MAY_WRITE if owner in TRITON else is_value
    else:
        is_harmless = False
    given = [*node.args, *(one.value for one in node.keywords)]
    return set() if is_harmless else {name for one in given for name in _pointer_names(one)}


def _is_value(node: ast.expr) -> bool:
    """Whether an expression is the result of a call of one of Triton's functions, such as ``tl.load(p).to(t)``."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and (ast.unparse(node.func.value) in TRITON or _is_value(node.func.value))
    )


def _assigned(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(node, ast.NamedExpr):
        yield node.target.id, node.value
    elif isinstance(node, ast.Assign):
        for target in node.targets:
            yield from ((one.id, node.value) for one in ast.walk(target) if isinstance(one, ast.Name))
    elif isinstance(node, (ast.AugAssign, ast.AnnAssign)) and isinstance(node.target, ast.Name) and node.value:
        yield node.target.id, node.value
    elif isinstance(node, ast.For):
        yield from ((one.id, node.iter) for one in ast.walk(node.target) if isinstance(one, ast.Name))


def _stored_through(node: ast.AST) -> set[str]:
    """The names in the pointer of a store: its first argument, or the descriptor whose method it is."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr not in STORES:
        return set()
    owner = node.func.value
    is_of_triton = ast.unparse(owner) in TRITON
    given = [*node.args[:1], *(one.value for one in node.keywords if one.arg in POINTERS)]
    return {name for one in (given if is_of_triton else [owner]) for name in _pointer_names(one)}


def _pointer_names(node: ast.expr) -> set[str]:
    """The names in an expression, without those in pointers of loads."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "load":
        return set()
    own = {node.id} if isinstance(node, ast.Name) else set()
    return own.union(*(_pointer_names(one) for one in ast.iter_child_nodes(node) if isinstance(one, ast.expr)))

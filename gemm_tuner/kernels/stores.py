"""Finds the output parameters of a Triton kernel from its source."""

from __future__ import annotations

import ast
from collections.abc import Iterator

STORES = ("store", "atomic_add", "atomic_max", "atomic_min", "atomic_and", "atomic_or", "atomic_xor", "atomic_xchg",
          "atomic_cas")  # fmt: skip

TRITON = ("tl", "language", "triton.language")


def stored_parameters(source: str, name: str) -> tuple[str, ...]:
    """The parameters in pointers of the kernel's stores and atomic operations, in order; the tensors among them are
    outputs. Stores in called functions are not found. Empty if the source does not define the function."""
    functions = [one for one in ast.walk(ast.parse(source)) if isinstance(one, ast.FunctionDef) and one.name == name]
    if not functions:
        return ()
    function = functions[0]
    made_of: dict[str, set[str]] = {}
    for node in ast.walk(function):
        for target, value in _assigned(node):
            made_of.setdefault(target, set()).update(_pointer_names(value))
    wanted = {part for node in ast.walk(function) for part in _stored_through(node)}
    seen: set[str] = set()
    while wanted - seen:
        one = (wanted - seen).pop()
        seen.add(one)
        wanted |= made_of.get(one, set())
    arguments = function.args
    return tuple(one.arg for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs) if one.arg in seen)


def _assigned(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(node, ast.Assign):
        for target in node.targets:
            yield from ((one.id, node.value) for one in ast.walk(target) if isinstance(one, ast.Name))
    elif isinstance(node, (ast.AugAssign, ast.AnnAssign)) and isinstance(node.target, ast.Name) and node.value:
        yield node.target.id, node.value


def _stored_through(node: ast.AST) -> set[str]:
    """The names in the pointer of a store: its first argument, or the descriptor whose method it is."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr not in STORES:
        return set()
    owner = node.func.value
    is_of_triton = ast.unparse(owner) in TRITON
    given = [*node.args[:1], *(one.value for one in node.keywords if one.arg == "pointer")]
    return {name for one in (given if is_of_triton else [owner]) for name in _pointer_names(one)}


def _pointer_names(node: ast.expr) -> set[str]:
    """The names in an expression, without those in pointers of loads."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "load":
        return set()
    own = {node.id} if isinstance(node, ast.Name) else set()
    return own.union(*(_pointer_names(one) for one in ast.iter_child_nodes(node) if isinstance(one, ast.expr)))

"""Extracts the part of a Python file that some of its functions need, because executing a whole tutorial or benchmark
would do more than define them."""

from __future__ import annotations

import ast
import difflib
import symtable
from collections.abc import Iterable, Iterator

from gemm_tuner.core.errors import UserError


def definitions(source: str, names: str | Iterable[str], where: str) -> str:
    """The file reduced to the statements that the functions ``names`` need, directly or indirectly. Other lines become
    blank, so that line numbers stay the same. Nothing is executed here.

    Raises UserError for a file that does not parse, and for a name that is not defined exactly once at the top level.
    """
    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        raise UserError(f"is no Python file: {error}", where=f"{where}, line {line}" if line else where) from error
    binding: dict[str, list[ast.stmt]] = {}
    for node in body:
        for bound in _bound(node):
            binding.setdefault(bound, []).append(node)
    wanted, seen = [names] if isinstance(names, str) else list(names), set()
    for name in wanted:
        _require(name, body, binding, where)
    kept = {id(node) for node in body if _always(node)}
    while wanted:
        one = wanted.pop()
        for node in binding.get(one, ()):
            kept.add(id(node))
            if id(node) not in seen:
                seen.add(id(node))
                wanted += _used(symtable.symtable(ast.unparse(node), where, "exec"))
    lines = source.splitlines(keepends=True)
    keep = {number for node in body if id(node) in kept for number in _lines(node)}
    return "".join(line if number in keep else "\n" for number, line in enumerate(lines, 1))


def _require(name: str, body: list[ast.stmt], binding: dict[str, list[ast.stmt]], where: str) -> None:
    """Raises UserError unless ``name`` is bound, and by at most one function definition; each branch of ``if`` and
    ``try`` may define it."""
    if name not in binding:
        functions = [node.name for node in body if isinstance(node, ast.FunctionDef)]
        near = difflib.get_close_matches(name, functions, 1)
        raise UserError(
            f"defines no {name}",
            where=where,
            accepted=", ".join(functions) or "a function at the file's top level",
            hint=f"did you mean {near[0]}?" if near else "",
        )
    twice = [node.lineno for node in body if isinstance(node, ast.FunctionDef) and node.name == name]
    if len(twice) > 1:
        lines = ", ".join(map(str, twice))
        raise UserError(f"defines {name} {len(twice)} times, at lines {lines}", where=where, hint="rename all but one")


def _used(table: symtable.SymbolTable) -> Iterator[str]:
    """The names of its module that a statement uses: not the parameters and local variables of functions in it, which
    a script may use, too, for something that should not run: ``x = torch.rand(n, device="cuda")``."""
    kind = table.get_type()
    for one in table.get_symbols():
        if kind == "module" or one.is_global() or (kind == "class" and one.is_referenced()):
            yield one.get_name()
    for inner in table.get_children():
        yield from _used(inner)


def parameters(source: str, name: str, where: str) -> tuple[str, ...]:
    """The names of a function's parameters, in order, without * and ** parameters. Raises UserError as
    ``top_level_function``."""
    of = top_level_function(source, name, where).args
    return tuple(one.arg for one in (*of.posonlyargs, *of.args, *of.kwonlyargs))


def require_decorator(source: str, name: str, where: str) -> None:
    """Raises UserError for a function without decorators, which is no kernel of Triton."""
    if not top_level_function(source, name, where).decorator_list:
        raise UserError(f"{name} is not under @triton.jit", where=where, hint=f"write that above def {name}")


def top_level_function(source: str, name: str, where: str) -> ast.FunctionDef:
    """The definition of a function. Raises UserError for a name that is something else, or is bound in an ``if`` or
    ``try``."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return node
    hint = f"write it as def {name}(...), not indented"
    raise UserError(f"{name} is no function at the file's top level", where=where, hint=hint)


def _always(node: ast.stmt) -> bool:
    """Whether a statement is always kept: ``from __future__`` and star imports, whose names are unknown."""
    return isinstance(node, ast.ImportFrom) and (
        node.module == "__future__" or any(alias.name == "*" for alias in node.names)
    )


def _bound(node: ast.stmt) -> Iterator[str]:
    """The names that a top-level statement binds, including those in the blocks of ``if`` and ``try``."""
    for part in ast.walk(node) if isinstance(node, (ast.If, ast.Try, ast.With)) else [node]:
        if isinstance(part, (ast.FunctionDef, ast.ClassDef)):
            yield part.name
        elif isinstance(part, (ast.Import, ast.ImportFrom)):
            yield from (alias.asname or alias.name.partition(".")[0] for alias in part.names)
        elif isinstance(part, (ast.Assign, ast.AnnAssign)):
            targets = part.targets if isinstance(part, ast.Assign) else [part.target]
            yield from (name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name))


def _lines(node: ast.stmt) -> range:
    """The lines of a statement, including decorators."""
    first = min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", ()))])
    return range(first, (node.end_lineno or node.lineno) + 1)

"""Extracts the definitions that functions need from the user's Python files: from their own files, and from files in
the same folder, or in the package that they are in, that these import.

Only the needed definitions are extracted, so that other code of the files does not run: ``from shapes import pad``
extracts what ``pad`` needs from shapes.py, and ``import shapes`` what is needed for the names used as ``shapes.NAME``.
A package is not imported for what one of its files defines, nor for Triton, which servers hand on to their kernels
under its usual names: importing a server takes seconds and needs its GPU.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

from gemm_tuner.kernels.definitions import definitions
from gemm_tuner.system.input_files import printable, read_text

MAX_SOURCE_BYTES = 4 * 2**20
# Names by which packages hand Triton on, to do without where it is not installed.
HANDED_ON = {
    "triton": "import triton",
    "tl": "import triton.language as tl",
    "tldevice": "import triton.language.extra.libdevice as tldevice",
    "HAS_TRITON": "HAS_TRITON = True",
}

Modules = tuple[tuple[str, str], ...]  # (import name, definitions)


def module_sources(wanted: Iterable[tuple[Path, str]]) -> Modules:
    """The modules that these functions (file, name) need, sorted by import name (the stem of the file).

    Raises UserError for a file that is missing, is not Python or does not define the name.
    """
    folder_of: dict[str, Path] = {}
    names: dict[str, set[str]] = {}
    left: list[tuple[str, Path, str]] = []
    for path, name in wanted:
        folder_of[path.stem] = path.parent
        left.append((path.stem, path, name))
    texts: dict[str, str] = {}
    while left:
        module, path, name = left.pop()
        if name in names.setdefault(module, set()):
            continue
        names[module].add(name)
        folder = folder_of[module]
        source = _with_triton(read_text(path, "Python file", "UTF-8 text", MAX_SOURCE_BYTES), folder)
        texts[module] = definitions(source, sorted(names[module]), printable(path))
        of_package: dict[str, list[str]] = {}
        for other, function in _imports(texts[module]):
            file = folder.joinpath(*other.split(".")).with_suffix(".py")
            if file.is_file():
                folder_of.setdefault(other, folder)
                left.append((other, file, function))
            else:
                of_package.setdefault(other, []).append(function)
        for other, functions in of_package.items():
            in_package = _in_package(folder, other)
            if in_package is not None and set(functions) <= _defined(in_package):
                folder_of.setdefault(other, in_package.parent)
                left += [(other, in_package, function) for function in functions]
    return tuple(sorted(texts.items()))


def _in_package(folder: Path, module: str) -> Path | None:
    """The file of a module of the package that ``folder`` is in; None for other modules."""
    first, *rest = module.split(".")
    for one in (folder.resolve(), *folder.resolve().parents) if rest else ():
        if one.name == first and (file := one.joinpath(*rest).with_suffix(".py")).is_file():
            return file
    return None


def _defined(file: Path) -> set[str]:
    """The functions, classes and values that a file defines, but not what it imports itself."""
    try:
        body = ast.parse(read_text(file, "Python file", "UTF-8 text", MAX_SOURCE_BYTES)).body
    except (SyntaxError, ValueError):
        return set()
    found = {node.name for node in body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    values = (node for node in body if isinstance(node, ast.Assign))
    return found | {name.id for node in values for name in node.targets if isinstance(name, ast.Name)}


def _with_triton(source: str, folder: Path) -> str:
    """The source with Triton itself where it imports it from the package that the file is in. Line numbers stay."""
    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError):
        return source
    packages = {one.name for one in (folder.resolve(), *folder.resolve().parents)}
    lines = source.splitlines(keepends=True)
    for node in body:
        if not isinstance(node, ast.ImportFrom) or node.level or not node.module:
            continue
        handed_on = [one for one in node.names if one.name in HANDED_ON and one.asname is None]
        if node.module.partition(".")[0] not in packages or "tl" not in [one.name for one in handed_on]:
            continue
        rest = [one for one in node.names if one not in handed_on]
        texts = [HANDED_ON[one.name] for one in handed_on]
        texts += [ast.unparse(ast.ImportFrom(node.module, rest, 0))] if rest else []
        last = node.end_lineno or node.lineno
        lines[node.lineno - 1 : last] = ["; ".join(texts) + "\n", *["\n"] * (last - node.lineno)]
    return "".join(lines)


def _imports(source: str) -> Iterator[tuple[str, str]]:
    """(module, name) for everything that a text imports and uses, including imports inside functions."""
    tree = ast.parse(source)
    plain: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from ((node.module, alias.name) for alias in node.names if alias.name != "*")
        elif isinstance(node, ast.Import):
            plain |= {alias.asname or alias.name: alias.name for alias in node.names}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and (name := _dotted(node.value)) in plain:
            yield plain[name], node.attr


def _dotted(node: ast.expr) -> str:
    """The dotted text of an expression such as ``a.b``; "" if it is not a name with attributes."""
    if isinstance(node, ast.Attribute):
        before = _dotted(node.value)
        return f"{before}.{node.attr}" if before else ""
    return node.id if isinstance(node, ast.Name) else ""

"""Extracts the definitions that functions need from the user's Python files: from their own files, and from files in
the same folder that these import.

Only the needed definitions are extracted, so that other code of the files does not run: ``from shapes import pad``
extracts what ``pad`` needs from shapes.py, and ``import shapes`` what is needed for the names used as ``shapes.NAME``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from gemm_tuner.kernels.definitions import definitions
from gemm_tuner.system.input_files import printable, read_text

MAX_SOURCE_BYTES = 4 * 2**20

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
        source = read_text(path, "Python file", "UTF-8 text", MAX_SOURCE_BYTES)
        texts[module] = definitions(source, sorted(names[module]), printable(path))
        folder = folder_of[module]
        for other, function in _imports(texts[module]):
            file = folder.joinpath(*other.split(".")).with_suffix(".py")
            if file.is_file():
                folder_of.setdefault(other, folder)
                left.append((other, file, function))
    return tuple(sorted(texts.items()))


def imported(modules: Mapping[str, str], module: str) -> set[str]:
    """Those of ``modules`` that ``module`` imports."""
    return {other for other, _ in _imports(modules[module]) if other in modules}


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

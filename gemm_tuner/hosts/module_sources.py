"""What of a user's Python files their functions need, as text: of the file of each and of those of its folder that it
imports.

Of each file only definitions are taken, so that nothing else of it runs: ``from shapes import pad`` takes of shapes.py
what ``pad`` needs, and ``import shapes`` takes what the names need that are used as ``shapes.NAME``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from gemm_tuner.kernels.definitions import definitions
from gemm_tuner.system.input_files import printable, read_text

MAX_SOURCE_BYTES = 4 * 2**20

Modules = tuple[tuple[str, str], ...]  # (name as it is imported, definitions) of each


def module_sources(wanted: Iterable[tuple[Path, str]]) -> Modules:
    """The modules that these functions, (file, name) each, need, sorted by name; a file is named by its stem.

    Raises UserError for a file that is not there, is no Python or does not define the name.
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
    """The modules among these that one of them imports."""
    return {other for other, _ in _imports(modules[module]) if other in modules}


def _imports(source: str) -> Iterator[tuple[str, str]]:
    """(module, name) of what a text imports and uses; imports inside functions count."""
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
    """``a.b`` of an expression that is a name or attributes of one, else nothing."""
    if isinstance(node, ast.Attribute):
        before = _dotted(node.value)
        return f"{before}.{node.attr}" if before else ""
    return node.id if isinstance(node, ast.Name) else ""

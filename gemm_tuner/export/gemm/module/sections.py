"""Merges the kernels of several generated scripts into one namespace. Equal definitions are written once; different
definitions with the same name are renamed.

Only names at the top level of scripts are considered. Two functions are equal if their texts are equal and the
functions and constants that they use are equal.
"""

from __future__ import annotations

import ast
import functools
import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

# The functions of a script that the launcher calls (docs/families.md).
ROOTS = ("calls", "scratch")


@dataclass(frozen=True, slots=True)
class Section:
    """The text of one generated script: the kernels of a family for one signature."""

    family: str
    signature: str
    text: str


@dataclass(frozen=True)
class Namespace:
    """The merged text of several scripts.

    imports: the import lines of the text.
    text:    functions and constants, each after the ones that it uses.
    names:   (family, signature, name in the script) -> name in the text, of ROOTS.
    """

    imports: tuple[str, ...]
    text: str
    names: dict[tuple[str, str, str], str]


@dataclass(frozen=True, eq=False)
class _Piece:
    """A top-level statement of a script. uses: (line from 0, byte column, name) of each use of another statement's
    name."""

    name: str
    lines: tuple[bytes, ...]
    uses: tuple[tuple[int, int, str], ...]
    is_import: bool


@dataclass(frozen=True)
class _Variant:
    """One version of a piece. sha: over its text and everything that it uses."""

    section: Section
    piece: _Piece
    sha: str


def merge(sections: Iterable[Section]) -> Namespace:
    """One namespace for all sections. Raises ValueError for a script without one of ROOTS."""
    scripts = [(section, _pieces(section.text)) for section in sections]
    shas = [_shas(pieces) for _, pieces in scripts]
    variants: dict[str, dict[str, _Variant]] = {}
    for (section, pieces), sha_of in zip(scripts, shas, strict=True):
        for name in _reached(pieces, section):
            variants.setdefault(name, {}).setdefault(sha_of[name], _Variant(section, pieces[name], sha_of[name]))
    named = {sha: new for same in variants.values() for sha, new in _new_names(same).items()}
    imports: list[str] = []
    texts: dict[str, str] = {}
    for (section, pieces), sha_of in zip(scripts, shas, strict=True):
        for name in _reached(pieces, section):
            piece = pieces[name]
            if piece.is_import:
                imports.append(_text(piece.lines))
            elif sha_of[name] not in texts:
                texts[sha_of[name]] = _renamed(piece, {use: named[sha_of[use]] for _, _, use in piece.uses})
    names = {
        (section.family, section.signature, root): named[sha_of[root]]
        for (section, _), sha_of in zip(scripts, shas, strict=True)
        for root in ROOTS
    }
    return Namespace(tuple(sorted(set(imports))), _joined(texts.values()), names)


def _joined(texts: Iterable[str]) -> str:
    """The texts, with functions separated by two blank lines and one-line constants on adjacent lines."""
    text, before = "", "\n"
    for part in texts:
        gap = "" if not text else "\n" if "\n" not in part and "\n" not in before else "\n\n\n"
        text, before = text + gap + part, part
    return text + "\n"


def _pieces(text: str) -> dict[str, _Piece]:
    """The functions, constants and imports of a script's top level, by name. Other statements are left out."""
    tree = ast.parse(text)
    lines = text.encode().split(b"\n")
    named = {name: node for node in tree.body if (name := _name_of(node))}
    return {name: _piece(name, node, lines, set(named)) for name, node in named.items()}


def _name_of(node: ast.stmt) -> str:
    if isinstance(node, ast.FunctionDef):
        return node.name
    if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
        return node.targets[0].id
    if isinstance(node, (ast.Import, ast.ImportFrom)) and len(node.names) == 1:
        return node.names[0].asname or node.names[0].name
    return ""


def _piece(name: str, node: ast.stmt, lines: list[bytes], known: set[str]) -> _Piece:
    decorators = node.decorator_list if isinstance(node, ast.FunctionDef) else []
    first = min([node.lineno, *(d.lineno for d in decorators)])
    own = tuple(line.rstrip() for line in lines[first - 1 : node.end_lineno])
    uses = [(use.lineno - first, use.col_offset, use.id) for use in _global_uses(node) if use.id in known]
    if isinstance(node, ast.FunctionDef):
        line = node.lineno - first
        uses.append((line, own[line].index(name.encode()), name))
    is_import = isinstance(node, (ast.Import, ast.ImportFrom))
    return _Piece(name, (ast.unparse(node).encode(),) if is_import else own, tuple(uses), is_import)


def _global_uses(node: ast.stmt) -> Iterator[ast.Name]:
    """The uses of top-level names in a statement, without names that arguments or local variables shadow."""
    if not isinstance(node, ast.FunctionDef):
        yield from (part for part in ast.walk(node) if isinstance(part, ast.Name))
        return
    arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    body = [part for statement in node.body for part in ast.walk(statement)]
    own = {argument.arg for argument in arguments}
    own |= {part.id for part in body if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}
    yield from (part for part in body if isinstance(part, ast.Name) and part.id not in own)
    outside = [*node.decorator_list, *(a.annotation for a in arguments if a.annotation), *node.args.defaults]
    yield from (part for root in outside for part in ast.walk(root) if isinstance(part, ast.Name))


def _reached(pieces: dict[str, _Piece], section: Section) -> list[str]:
    """The names that ROOTS depend on, each after those that it uses."""
    order: list[str] = []

    def visit(name: str) -> None:
        if name in order:
            return
        for _, _, used in pieces[name].uses:
            if used != name:
                visit(used)
        order.append(name)

    for root in ROOTS:
        if root not in pieces:
            raise ValueError(f"the script of {section.family} for {section.signature} has no {root}")
        visit(root)
    return order


def _shas(pieces: dict[str, _Piece]) -> dict[str, str]:
    """12 hex digits over each piece's text and everything that it uses, directly or indirectly."""

    @functools.cache
    def sha(name: str) -> str:
        used = sorted({use for _, _, use in pieces[name].uses if use != name})
        text = _text(pieces[name].lines) + "".join(f"\n{use} {sha(use)}" for use in used)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    return {name: sha(name) for name in pieces}


def _new_names(variants: dict[str, _Variant]) -> dict[str, str]:
    """sha -> new name: the original name for a single version, else with the signature, and if needed the family."""
    met = list(variants.values())
    if len(met) == 1 or met[0].piece.is_import:
        return {variant.sha: variant.piece.name for variant in met}
    by_signature = {variant.sha: f"{variant.piece.name}_{variant.section.signature}" for variant in met}
    if len(set(by_signature.values())) == len(met):
        return by_signature
    return {v.sha: f"{v.piece.name}_{v.section.family}_{v.section.signature}" for v in met}


def _renamed(piece: _Piece, names: dict[str, str]) -> str:
    lines = list(piece.lines)
    for line, column, name in sorted(set(piece.uses), reverse=True):
        old = name.encode()
        before, after = lines[line][:column], lines[line][column:]
        if not after.startswith(old):
            raise ValueError(f"{piece.name}: no {name} where one was parsed")
        lines[line] = before + names[name].encode() + after.removeprefix(old)
    return _text(lines)


def _text(lines: Iterable[bytes]) -> str:
    return b"\n".join(lines).decode()

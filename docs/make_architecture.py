"""Draws docs/packages.svg from the layers in setup.cfg and the imports of gemm_tuner:  python docs/make_architecture.py

One box a package, with its place in the order of [importlinter] and the first sentence of its docstring. An arrow goes
from a package to one that it imports. Arrows that follow from others are left out (transitive reduction): of
pipeline -> decide -> core and pipeline -> core, the latter. Imports against the order are red and dashed.
"""

from __future__ import annotations

import ast
import configparser
import itertools
import re
import sys
import textwrap
from dataclasses import dataclass
from html import escape
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "docs" / "packages.svg"
PACKAGE = "gemm_tuner"
# Sizes in pixels. A lane is the room of an arrow that passes a row without ending there.
BOX_W, BOX_H, GAP, LANE, ROW_H, MARGIN = 252, 78, 26, 4, 122, 24
STYLE = """\
text { font-family: Helvetica, Arial, sans-serif; fill: #1b2733; }
.name { font-size: 17px; font-weight: bold; }
.place, .note { font-size: 12px; fill: #66788a; }
.about { font-size: 12px; }
.box { fill: #eef4fb; stroke: #3d6ea5; stroke-width: 1.3; }
.arrow { fill: none; stroke: #5c7287; stroke-width: 1.4; marker-end: url(#head); }
.upward { stroke: #c0392b; stroke-dasharray: 6 4; }
"""


@dataclass(frozen=True)
class Packages:
    """order: highest layer first. about: package -> first sentence. imports: package -> packages that it imports."""

    order: tuple[str, ...]
    about: dict[str, str]
    imports: dict[str, frozenset[str]]

    def downward(self, package: str) -> frozenset[str]:
        """What a package imports as the contract allows."""
        place = self.order.index(package)
        return frozenset(one for one in self.imports[package] if self.order.index(one) > place)


def read_packages() -> Packages:
    """The layers of the contract, the docstrings and the imports, those inside functions among them."""
    contract = configparser.ConfigParser()
    contract.read(ROOT / "setup.cfg", encoding="utf-8")
    order = tuple(re.findall(r"\w+", contract["importlinter:contract:layers"]["layers"]))
    about = {name: first_sentence(ROOT / PACKAGE / name / "__init__.py") for name in order}
    graph = grimp.build_graph(PACKAGE, cache_dir=None)
    imports: dict[str, set[str]] = {name: set() for name in order}
    for module in graph.modules:
        for imported in graph.find_modules_directly_imported_by(module):
            importer, target = (one.split(".")[1:2] for one in (module, imported))
            if importer and target and importer != target:
                imports[importer[0]].add(target[0])
    return Packages(order, about, {name: frozenset(targets) for name, targets in imports.items()})


def first_sentence(path: Path) -> str:
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return re.split(r"\.(?:\s|$)", " ".join(text.split("\n\n")[0].split()))[0]


def reduced(packages: Packages) -> list[tuple[str, str]]:
    """The arrows to draw: imports that no longer chain of imports implies."""
    below: dict[str, frozenset[str]] = {}
    for name in reversed(packages.order):
        below[name] = frozenset().union(*({one} | below[one] for one in packages.downward(name)))
    return [
        (name, one)
        for name in packages.order
        for one in sorted(packages.downward(name), key=packages.order.index)
        if not any(one in below[other] for other in packages.downward(name))
    ]


def rows_of(packages: Packages, arrows: list[tuple[str, str]]) -> dict[str, int]:
    """Row of each package, 0 on top: as high as what imports it allows."""
    rows: dict[str, int] = {}
    for name in packages.order:
        rows[name] = max((rows[importer] + 1 for importer, target in arrows if target == name), default=0)
    return rows


def placed(
    packages: Packages, arrows: list[tuple[str, str]]
) -> tuple[dict[str, int], dict[str, float], list[list[str]]]:
    """(row of each node, its x, the nodes of each arrow). Nodes are packages and, named 'a>b>row', lanes of arrows.

    Layers as in Sugiyama's method: an arrow over several rows gets a lane in each row between, rows are sorted by the
    mean place of their neighbours until crossings no longer fall, then boxes move towards their neighbours.
    """
    rows = rows_of(packages, arrows)
    paths = [
        [start, *(f"{start}>{end}>{row}" for row in range(rows[start] + 1, rows[end])), end] for start, end in arrows
    ]
    rows |= {node: int(node.rsplit(">", 1)[1]) for path in paths for node in path if ">" in node}
    links = [link for path in paths for link in itertools.pairwise(path)]
    near: dict[str, list[str]] = {node: [] for node in rows}
    for upper, lower in links:
        near[upper].append(lower)
        near[lower].append(upper)
    ordered = [[node for node in rows if rows[node] == row] for row in range(max(rows.values()) + 1)]
    best = ordered
    for sweep in range(40):
        ordered = swept(ordered, near, down=sweep % 2 == 0)
        if crossings(ordered, links) < crossings(best, links):
            best = ordered
    return rows, spread(best, near), paths


def swept(ordered: list[list[str]], near: dict[str, list[str]], *, down: bool) -> list[list[str]]:
    """The rows, each sorted by its nodes' neighbours in the row before it."""
    swept_rows = [list(row) for row in ordered]
    place = {node: index / len(row) for row in swept_rows for index, node in enumerate(row)}
    steps = range(len(swept_rows)) if down else range(len(swept_rows) - 1, -1, -1)
    for step in steps:
        behind = step - 1 if down else step + 1
        before = set(swept_rows[behind]) if 0 <= behind < len(swept_rows) else set()
        known = {node: [place[one] for one in near[node] if one in before] for node in swept_rows[step]}
        swept_rows[step].sort(key=lambda node: mean(known[node], place[node]))
        place |= {node: index / len(swept_rows[step]) for index, node in enumerate(swept_rows[step])}
    return swept_rows


def mean(values: list[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise


def crossings(rows: list[list[str]], links: list[tuple[str, str]]) -> int:
    """How many pairs of arrows cross between neighbouring rows."""
    place = {node: (row, index) for row, nodes in enumerate(rows) for index, node in enumerate(nodes)}
    ends = [(place[upper][0], place[upper][1], place[lower][1]) for upper, lower in links]
    return sum(
        one[0] == other[0] and (one[1] - other[1]) * (one[2] - other[2]) < 0
        for number, one in enumerate(ends)
        for other in ends[:number]
    )


def spread(rows: list[list[str]], near: dict[str, list[str]]) -> dict[str, float]:
    """x of each node's middle: the mean of its neighbours' as far as the boxes beside it allow."""
    x = {node: 0.0 for row in rows for node in row}
    for _ in range(100):
        for row in rows:
            # Lanes pull nine times as hard at lanes, so that long arrows are straight.
            wanted = [
                mean([x[one] for one in near[node] for _ in range(9 if ">" in node and ">" in one else 1)], x[node])
                for node in row
            ]
            at = [wanted[0]] if row else []
            for index in range(1, len(row)):
                at.append(max(wanted[index], at[-1] + room(row[index - 1], row[index])))
            shift = mean([want - got for want, got in zip(wanted, at, strict=True)], 0.0)
            x |= {node: got + shift for node, got in zip(row, at, strict=True)}
    left = min(x[node] - width(node) / 2 for node in x)
    return {node: round(at - left + MARGIN, 1) for node, at in x.items()}


def width(node: str) -> float:
    return LANE if ">" in node else BOX_W


def room(left: str, right: str) -> float:
    """Distance between the middles of two neighbours in a row."""
    return (width(left) + width(right)) / 2 + GAP


def picture() -> str:
    """The SVG as contract, docstrings and imports are now."""
    packages = read_packages()
    arrows = reduced(packages)
    rows, x, paths = placed(packages, arrows)
    top = {node: MARGIN + rows[node] * ROW_H for node in rows}
    total_w = round(max(x[node] + width(node) / 2 for node in x) + MARGIN)
    total_h = MARGIN + max(rows.values()) * ROW_H + BOX_H + MARGIN
    parts = [
        '<svg xmlns="http://www.w3.org/2000/svg" '
        f'viewBox="0 0 {total_w} {total_h}" width="{total_w}" height="{total_h}">',
        f"<style>\n{STYLE}</style>",
        '<defs><marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0L10 5L0 10z" fill="#5c7287"/></marker></defs>',
        f'<rect width="{total_w}" height="{total_h}" fill="white"/>',
    ]
    parts += [f'<path class="arrow" d="{curve(path, x, top)}"/>' for path in paths]
    for name in packages.order:
        upward = sorted(packages.imports[name] - packages.downward(name))
        parts += [
            f'<path class="arrow upward" d="M{x[name]} {top[name]}L{x[one]} {top[one] + BOX_H}"/>' for one in upward
        ]
    for place, name in enumerate(reversed(packages.order), start=1):
        parts += box(name, packages.about[name], place, x[name], top[name])
    return "\n".join([*parts, "</svg>", ""])


def curve(path: list[str], x: dict[str, float], top: dict[str, int]) -> str:
    """From the lower edge of the first box through the lanes to the upper edge of the last."""
    drawn = f"M{x[path[0]]} {top[path[0]] + BOX_H}"
    for upper, lower in itertools.pairwise(path):
        start, end = top[upper] + BOX_H, top[lower]
        if ">" in upper:
            drawn += f"V{start}"
        middle = (start + end) / 2
        drawn += f"C{x[upper]} {middle} {x[lower]} {middle} {x[lower]} {end}"
    return drawn


def box(name: str, about: str, place: int, x: float, top: int) -> list[str]:
    left = x - BOX_W / 2 + 10
    lines = textwrap.wrap(about, 40, max_lines=3, placeholder=" ...")
    return [
        f'<rect class="box" x="{x - BOX_W / 2}" y="{top}" width="{BOX_W}" height="{BOX_H}" rx="6"/>',
        f'<text class="name" x="{left}" y="{top + 22}">{name}</text>',
        f'<text class="place" x="{x + BOX_W / 2 - 10}" y="{top + 21}" text-anchor="end">{place}</text>',
        *(
            f'<text class="about" x="{left}" y="{top + 39 + 15 * number}">{escape(line)}</text>'
            for number, line in enumerate(lines)
        ),
    ]


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    PICTURE.write_text(picture(), encoding="utf-8")

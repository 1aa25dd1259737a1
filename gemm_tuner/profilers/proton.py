"""Proton, the profiler that is part of Triton. It adds up launches, so every timed call gets its own scope."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gemm_tuner.core.errors import UserError
from gemm_tuner.profilers.base import (
    MAX_ROWS,
    UNKNOWN_VERSION,
    Dispatch,
    Profiler,
    TraceError,
    no_kernels,
    to_frame,
    unreadable,
    written,
)
from gemm_tuner.system.documents import show
from gemm_tuner.system.input_files import read_text
from gemm_tuner.system.json_records import parse_json

if TYPE_CHECKING:
    import pandas as pd

OUTPUT = "trace.hatchet"
SCOPE = re.compile(r"L[0-9]{1,18}")
TIME = "time (ns)"
LONGEST_NS = 2**63
MAX_TREE_BYTES = 256 * 2**20
LAUNCH_METADATA = "__proton_launch_metadata"  # kernels that Triton runs to compute the metadata of a launch
FLAGS_WITH_A_VALUE = ("-X", "-W")
SHAPE = "proton's tree: a list whose first element has frame, metrics and children"


class Proton(Profiler):
    name = "proton"
    backends = ("cuda", "hip")
    uses_scopes = True
    runs_beside_others = True
    install_hint = "proton is part of Triton: pip install triton"

    def version(self) -> str | None:
        """Triton's version, from the installed files, because importing Triton is slow."""
        try:
            spec = find_spec("triton")
            folders = list(spec.submodule_search_locations or ()) if spec else []
            if not any((Path(folder) / "profiler" / "proton.py").is_file() for folder in folders):
                return None
            return triton_version()
        except (ImportError, ValueError, OSError):
            return None

    def command(self, argv: list[str], out_dir: Path) -> list[str]:
        """As the base class says. argv: an interpreter, its flags, a script file and the script's arguments.

        Proton's command line (Triton 3.6 and 3.9) accepts a script path but not ``-m module``. The interpreter's flags
        come before proton's own ``-m``.
        """
        script = script_index(argv)
        profile = ["-m", "triton.profiler.proton", "-n", str(out_dir / "trace")]
        return [*argv[:script], *profile, *argv[script:]]

    def read(self, out_dir: Path) -> pd.DataFrame:
        return read_file(written(out_dir / OUTPUT, "proton writes it when the script has ended"))


def triton_version() -> str:
    """The version of the installed Triton, whose package has other names in some builds, such as those for ROCm."""
    try:
        return metadata.version("triton")
    except metadata.PackageNotFoundError:
        packages = metadata.packages_distributions().get("triton", [])
        return metadata.version(packages[0]) if packages else UNKNOWN_VERSION


def script_index(argv: list[str]) -> int:
    """The index of the script after the interpreter and its flags."""
    index = 1
    while index < len(argv) and argv[index].startswith("-"):
        if argv[index] in ("-m", "-c"):
            raise ValueError(f"proton runs a script file, not python {argv[index]}")
        index += 2 if argv[index] in FLAGS_WITH_A_VALUE else 1
    if index >= len(argv):
        raise ValueError("proton needs an interpreter and a script file")
    return index


def read_file(path: Path) -> pd.DataFrame:
    """Reads a .hatchet file (JSON). start_ns is an ordinal: rows outside any scope first, then by scope number.

    A kernel that ran c times in one scope gives c rows with the mean time, because proton keeps only the sum.
    """
    found = sorted(leaves(path, load_tree(path)), key=lambda leaf: leaf[0])
    rows = (
        (name, time_ns / count, f"L{scope}" if scope >= 0 else "")
        for scope, name, count, time_ns in found
        for _ in range(count)
    )
    return to_frame(path, (Dispatch(name, order, mean_ns, scope) for order, (name, mean_ns, scope) in enumerate(rows)))


def load_tree(path: Path) -> Any:
    try:
        text = read_text(path, "file", "JSON", MAX_TREE_BYTES)
        if not text.strip():
            raise no_kernels(path)
        tree = parse_json(text, "file", str(path))
    except TraceError:
        raise
    except UserError as error:
        raise unreadable(path, None, error.what, accepted=SHAPE) from error
    if not isinstance(tree, list) or not tree:
        raise bad_shape(path)
    return tree[0]


def leaves(path: Path, root: Any) -> Iterator[tuple[int, str, int, float]]:
    """(scope number or -1, kernel name, launches, total ns) of every kernel, in the order of the file."""
    stack = [(root, -1)]
    while stack:
        node, scope = stack.pop()
        try:
            name, metrics, children = node["frame"]["name"], node["metrics"], list(node["children"])
            count, time_ns = metrics.get("count", 0), metrics.get(TIME)
        except (KeyError, TypeError, AttributeError) as error:
            raise bad_shape(path) from error
        if name == LAUNCH_METADATA:
            continue
        if count and time_ns is not None:
            if children:
                raise unreadable(path, None, f"{show(name)} has both a time and children", accepted=SHAPE)
            yield scope, *checked(path, name, count, time_ns)
        if isinstance(name, str) and SCOPE.fullmatch(name):
            scope = int(name[1:])
        stack.extend((child, scope) for child in reversed(children))


def checked(path: Path, name: Any, count: Any, time_ns: Any) -> tuple[str, int, float]:
    numeric = type(time_ns) in (int, float) and type(count) is int
    if not isinstance(name, str) or not numeric or not 1 <= count <= MAX_ROWS or not 0 <= time_ns < LONGEST_NS:
        what = f"{show(name)} ran {show(count)} times in {show(time_ns)} ns"
        raise unreadable(path, None, what, accepted="numbers, 0 or more")
    return name, count, float(time_ns)


def bad_shape(path: Path) -> TraceError:
    return unreadable(path, None, "the file is not a proton tree", accepted=SHAPE)

"""Proton, the profiler inside Triton. It sums over launches, so every timed call gets a scope of its own."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gemm_tuner.profilers.base import (
    MAX_ROWS,
    PLAIN_NUMBERS,
    UNKNOWN_VERSION,
    Dispatch,
    TraceError,
    missing_file,
    no_kernels,
    to_frame,
    unreadable,
)
from gemm_tuner.system.documents import show

if TYPE_CHECKING:
    import pandas as pd

OUTPUT = "trace.hatchet"
SCOPE = re.compile(r"L[0-9]{1,18}")
TIME = "time (ns)"
LONGEST_NS = 2**63
MAX_TREE_BYTES = 256 * 2**20
LAUNCH_METADATA = "__proton_launch_metadata"  # kernels that Triton ran to compute a launch's metadata
FLAGS_WITH_A_VALUE = ("-X", "-W")
SHAPE = "proton's tree: a list whose first element has frame, metrics and children"


@dataclass(frozen=True, slots=True)
class Proton:
    name: str = "proton"
    uses_scopes: bool = True
    uses_capture_range: bool = False
    uses_clock: bool = False
    install_hint: str = "proton is part of Triton: pip install triton"

    def supports(self, backend: str) -> bool:
        return backend in ("cuda", "hip")

    def version(self) -> str | None:
        """Triton's version. Looks for the files only, because importing Triton takes long."""
        try:
            spec = find_spec("triton")
            folders = list(spec.submodule_search_locations or ()) if spec else []
            if not any((Path(folder) / "profiler" / "proton.py").is_file() for folder in folders):
                return None
            return triton_version()
        except (ImportError, ValueError, OSError):
            return None

    def command(self, argv: list[str], out_dir: Path) -> list[str]:
        """``argv`` is an interpreter, its flags, a script file and the script's arguments.

        Proton's command line (Triton 3.6 and 3.9) takes a script by its path; it knows no
        ``-m module``. The interpreter's flags go before its own ``-m``.
        """
        script = script_index(argv)
        profile = ["-m", "triton.profiler.proton", "-n", str(out_dir / "trace")]
        return [*argv[:script], *profile, *argv[script:]]

    def export_command(self, out_dir: Path) -> list[str] | None:
        return None

    def read(self, out_dir: Path) -> pd.DataFrame:
        path = out_dir / OUTPUT
        if not path.is_file():
            raise missing_file(path, "proton writes it when the script has ended")
        return read_file(path)

    def environment(self) -> dict[str, str]:
        return dict(PLAIN_NUMBERS)


def triton_version() -> str:
    """Triton comes in packages of several names, such as those built for ROCm."""
    try:
        return metadata.version("triton")
    except metadata.PackageNotFoundError:
        packages = metadata.packages_distributions().get("triton", [])
        return metadata.version(packages[0]) if packages else UNKNOWN_VERSION


def script_index(argv: list[str]) -> int:
    """Where the script stands behind the interpreter and its flags."""
    index = 1
    while index < len(argv) and argv[index].startswith("-"):
        if argv[index] in ("-m", "-c"):
            raise ValueError(f"proton runs a script file, not python {argv[index]}")
        index += 2 if argv[index] in FLAGS_WITH_A_VALUE else 1
    if index >= len(argv):
        raise ValueError("proton needs an interpreter and a script file")
    return index


def read_file(path: Path) -> pd.DataFrame:
    """Reads a .hatchet file (JSON). start_ns is an ordinal: rows outside any scope, then by scope number.

    A kernel that ran c times in one scope gives c rows of the mean time: proton keeps no more.
    """
    found = sorted(leaves(path, load_tree(path)), key=lambda leaf: leaf[0])
    rows = (
        (name, time_ns / count, f"L{scope}" if scope >= 0 else "")
        for scope, name, count, time_ns in found
        for _ in range(count)
    )
    return to_frame(path, (Dispatch(name, order, mean_ns, scope) for order, (name, mean_ns, scope) in enumerate(rows)))


def load_tree(path: Path) -> Any:
    if path.stat().st_size > MAX_TREE_BYTES:
        raise unreadable(path, None, "the file is too large", accepted=f"up to {MAX_TREE_BYTES >> 20} MiB")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise unreadable(path, None, "the file is not UTF-8 text", accepted=SHAPE) from error
    if not text.strip():
        raise no_kernels(path)
    try:
        tree = json.loads(text, object_pairs_hook=no_key_twice)
    except json.JSONDecodeError as error:
        raise unreadable(path, error.lineno, f"the file is not whole JSON: {error.msg}", accepted=SHAPE) from error
    except ValueError as error:
        raise unreadable(path, None, str(error), accepted=SHAPE) from error
    except RecursionError as error:
        raise bad_shape(path) from error
    if not isinstance(tree, list) or not tree:
        raise bad_shape(path)
    return tree[0]


def no_key_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A mapping. Raises ValueError for a key given twice: the file says two things at once."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a mapping of the file gives a key twice")
    return found


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

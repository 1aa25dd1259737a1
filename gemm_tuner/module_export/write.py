"""Writes the module: reads the results file, renders it, and says what was left out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gemm_tuner import results
from gemm_tuner.documents import printable, write_text_atomically
from gemm_tuner.errors import UserError
from gemm_tuner.module_export.render import rendered
from gemm_tuner.module_export.rows import LeftOut, select
from gemm_tuner.options import data_folder
from gemm_tuner.records import Target


@dataclass(frozen=True, slots=True)
class ModuleFile:
    """What was written. ``left_out``: the sizes of the results file that matmul does not hold."""

    path: Path
    num_sizes: int
    left_out: tuple[LeftOut, ...]


def write_module(results_path: Path, out: Path, templates: Path | None = None) -> ModuleFile:
    """Writes ``out``, a Python file with the tuned kernels of a results file and ``matmul(a, b, bias=None)``.

    templates: folder of the kernel templates; the project's own when None.
    Raises UserError for a file that is no results file, names no architecture or has no row for matmul, and for a
    template that does not render; EnvironmentFault when ``out`` cannot be written.
    """
    found = results.read(results_path)
    target = _target(found.header, results_path)
    tuned, left_out = select(found.rows, found.without_config)
    if not tuned:
        reasons = "; ".join(sorted({one.reason for one in left_out})) or "it holds no sizes"
        accepted = "rows without batch, scales, activation, alpha and beta"
        raise UserError(f"has no row for matmul: {reasons}", where=printable(results_path), accepted=accepted)
    write_text_atomically(out, rendered(templates or data_folder("templates"), tuned, left_out, found.header, target))
    return ModuleFile(out, len(tuned), left_out)


def _target(header: dict[str, str | int], path: Path) -> Target:
    arch = str(header.get("arch", ""))
    if not arch.startswith(("sm_", "gfx")):
        what = f"names no architecture: arch is {arch!r}"
        raise UserError(what, where=f"{printable(path)}, header", accepted="such as sm_90 or gfx942")
    return Target("cuda", arch, 32) if arch.startswith("sm_") else Target("hip", arch, 64)

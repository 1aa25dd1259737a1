"""As a script: ``thread_orders.py FOLDER`` compiles kernels for matrices whose sides are odd, and prints how
neighbouring threads lie in the tiles that are loaded and stored by pointer: along columns (1) or along rows (0)."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from work import ROOT, config_for, space_of

from gemm_tuner.compile import compile_tasks
from gemm_tuner.gemm.problem import GemmProblem, Layout
from gemm_tuner.languages.triton import compile_call
from gemm_tuner.languages.triton.cached_compile import warm_up
from gemm_tuner.languages.triton.language import LANGUAGE

TILE = (64, 32, 128)
MATRICES = {"64x128": "A", "128x32": "B", "64x32": "C"}
ACCESS = re.compile(r"(?:tt\.store|tt\.load) .*tensor<(\d+x\d+)x!tt\.ptr<\w+>, (#\w+)>")
LAYOUT = re.compile(r"^(#\w+) = #ttg\.blocked<\{.*order = \[(\d)", re.MULTILINE)
CASES = (("gemm_packed", "row", "row"), *(("gemm_tile", a, b) for a in ("row", "col") for b in ("row", "col")))


def orders(ttgir: str) -> set[str]:
    """``MATRIX:DIMENSION`` of all loads and stores of tiles; the dimension is the first in the layout's ``order``."""
    layouts = dict(LAYOUT.findall(ttgir))
    return {f"{MATRICES[shape]}:{layouts.get(name, name)}" for shape, name in ACCESS.findall(ttgir)}


def main(folder: Path) -> None:
    device = space_of("sm_90").device
    os.environ.update(LANGUAGE.environment(folder / "cache"), TRITON_STORE_BINARY_ONLY="0")
    LANGUAGE.start_worker(device.target, "")
    for family, layout_a, layout_b in CASES:
        problem = GemmProblem(1025, 1027, 1023, layout_a=Layout(layout_a), layout_b=Layout(layout_b))
        config = config_for(device, *TILE, family=family, **({"PACK_BLOCK": 512} if family == "gemm_packed" else {}))
        scripts = compile_tasks.write_scripts(ROOT / "templates", folder, [(problem, config)], device.target)
        task = compile_tasks.task_for(scripts, problem, config, device.target)
        launch = next(one for one in compile_call.launches_of(task, str(folder)) if one[0] == task.name)
        kernel, _ = warm_up(launch)
        print(family, layout_a, layout_b, *sorted(orders(kernel.asm["ttgir"])))


main(Path(sys.argv[1]))

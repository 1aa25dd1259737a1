"""As a script: ``store_orders.py FOLDER`` compiles kernels that store an odd C, and prints for each store of a tile
which dimension of C neighbouring threads follow: 1 for columns, which lie side by side in memory, 0 for rows."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from work import ROOT, config_for, space_of

from gemm_tuner.compile import compile_tasks
from gemm_tuner.gemm.problem import GemmProblem
from gemm_tuner.languages.triton import compile_call
from gemm_tuner.languages.triton.cached_compile import warm_up
from gemm_tuner.languages.triton.language import LANGUAGE

ODD = GemmProblem(95, 97, 63)
FAMILIES = {"gemm_packed": {"PACK_BLOCK": 512}, "gemm_tile": {}}


def followed(ttgir: str) -> list[str]:
    """Of the layout of each store, in the order of the text: the dimension that is first in its ``order``."""
    orders = dict(re.findall(r"^(#\w+) = #ttg\.blocked<\{.*order = \[(\d)", ttgir, re.MULTILINE))
    stores = re.findall(r"tt\.store .*tensor<\d+x\d+x!tt\.ptr<\w+>, (#\w+)>", ttgir)
    return [orders.get(layout, layout) for layout in stores]


def main(folder: Path) -> None:
    device = space_of("sm_90").device
    os.environ.update(LANGUAGE.environment(folder / "cache"), TRITON_STORE_BINARY_ONLY="0")
    LANGUAGE.start_worker(device.target, "")
    for family, more in FAMILIES.items():
        config = config_for(device, 64, 64, 32, family=family, **more)
        scripts = compile_tasks.write_scripts(ROOT / "templates", folder, [(ODD, config)], device.target)
        task = compile_tasks.task_for(scripts, ODD, config, device.target)
        launch = next(one for one in compile_call.launches_of(task, str(folder)) if one[0] == task.name)
        kernel, _ = warm_up(launch)
        print(family, *followed(kernel.asm["ttgir"]))


main(Path(sys.argv[1]))

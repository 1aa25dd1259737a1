"""Templates of gemm_tile whose kernels do wrong beside C, by the columns of their tile."""

from __future__ import annotations

import shutil
from pathlib import Path

from gemm_tuner.gemm.problem import GemmProblem

ROOT = Path(__file__).resolve().parents[2]
# A tile of C, so that a kernel of one program has read all of A before it writes to it. In fp16 the interpreter's
# operands are those that a check keeps, and no copies of wider types.
ONE_TILE = GemmProblem(64, 32, 512, "fp16", "fp16", "fp16")
# Columns of a tile of 64 rows. One damages A once it is through, one writes nothing.
RIGHT, DAMAGES, IDLES = 64, 32, 16
ORDERS = ((RIGHT, IDLES, RIGHT, DAMAGES, RIGHT), (DAMAGES, RIGHT), (IDLES, DAMAGES, RIGHT))

STORE = '{{ macros.store_part(p, false, "accumulator", "0", "BLOCK_SIZE_N", 8) }}\n    else:\n'
BEFORE = f"    if SPLIT_K == 1:\n{STORE}"
AFTER = f"""\
    if BLOCK_SIZE_N == {DAMAGES}:
        tl.debug_barrier()
        tl.store(a_ptr + tl.arange(0, 32), tl.full((32,), 3.0, tl.float16))
    if SPLIT_K == 1 and BLOCK_SIZE_N != {IDLES}:
{STORE.replace("else:", "elif SPLIT_K > 1:")}"""


def faulty_templates(folder: Path) -> Path:
    """A copy of the templates with these kernels."""
    found = shutil.copytree(ROOT / "templates", folder / "templates")
    file = found / "gemm_tile.py.j2"
    text = file.read_text()
    assert text.count(BEFORE) == 1
    file.write_text(text.replace(BEFORE, AFTER))
    return found

"""Usual parameters of Triton kernels, as help for writing the ``params`` of a spec."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class UsualParam:
    """values: in the form of a spec. of: whether it is a parameter of the kernel or of its launch."""

    name: str
    values: tuple[int, ...]
    meaning: str
    of: str = "kernel"


USUAL_PARAMS = (
    UsualParam("BLOCK_SIZE_M", (16, 32, 64, 128, 256), "rows of a program's tile"),
    UsualParam("BLOCK_SIZE_N", (16, 32, 64, 128, 256), "columns of a program's tile"),
    UsualParam("BLOCK_SIZE_K", (32, 64, 128), "terms of a sum in one step"),
    UsualParam("GROUP_SIZE_M", (1, 8, 16, 32, 64), "rows of tiles that are computed together, for L2"),
    UsualParam("num_warps", (2, 4, 8), "warps of a program", "launch"),
    UsualParam("num_stages", (1, 2, 3, 4, 5), "stages of the software pipeline", "launch"),
    UsualParam("waves_per_eu", (1, 2, 4, 6, 8), "AMD: waves of an execution unit", "launch"),
    UsualParam("matrix_instr_nonkdim", (16,), "AMD: rows and columns of a matrix instruction; also 32", "launch"),
)

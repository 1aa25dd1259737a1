"""Templates whose kernels do wrong on a GPU, each tile in a way of its own, and how each should end."""

from __future__ import annotations

from dataclasses import dataclass

AXES = {
    "BLOCK_SIZE_M": "[64, 128]",
    "BLOCK_SIZE_N": "[32, 64, 128]",
    "BLOCK_SIZE_K": "[64]",
    "GROUP_SIZE_M": "[1]",
    "SPLIT_K": "[1]",
    "num_warps": "[4]",
    "num_stages": "[3]",
}
SIZES = "- {M: 2048, N: 2048, K: 512}\n"
GOOD = "BM128_BN128"


@dataclass(frozen=True)
class Fault:
    """What the kernels of a tile do, and the statuses that are right for it."""

    title: str
    tile: str
    ends: tuple[str, ...]


FAULTS = (
    Fault("a kernel that never ends", "BM64_BN32", ("timeout",)),
    Fault("a store far out of bounds (illegal address)", "BM64_BN64", ("crashed",)),
    Fault("a trap (sticky error)", "BM64_BN128", ("crashed",)),
    Fault("a wrong mask along K", "BM128_BN32", ("wrong",)),
    # Programs add to the same elements without a lock: other bits in every call, if the GPU is busy enough.
    Fault("a race", "BM128_BN64", ("unstable", "wrong")),
)

BEFORE_THE_SUM = "    num_pid_n = tl.cdiv(N, BLOCK_SIZE_N)\n"
BEFORE_THE_END = "\n\n{{ macros.split_k_reduce(p, slices) }}"
MASK = "        a = tl.load(a_ptrs, mask=offs_k[None, :] < k_left, other=0.0)"
TEMPLATES = {
    "gemm_tile.py.j2": {
        BEFORE_THE_SUM: BEFORE_THE_SUM
        + """\
    if BLOCK_SIZE_M == 64:
        if BLOCK_SIZE_N == 32:
            spin = 0
            while tl.load(a_ptr, volatile=True) == tl.load(a_ptr, volatile=True):
                spin += 1
        if BLOCK_SIZE_N == 64:
            tl.store(c_ptr + (pid.to(tl.int64) + 1) * 1099511627776, 1.0)
        if BLOCK_SIZE_N == 128:
            tl.inline_asm_elementwise("trap; mov.b32 $0, 0;", "=r", [], dtype=tl.int32, is_pure=False, pack=1)
""",
        BEFORE_THE_END: """
    if BLOCK_SIZE_M == 128:
        if BLOCK_SIZE_N == 64:
            lanes = tl.arange(0, 32)
            tl.store(c_ptr + lanes, tl.load(c_ptr + lanes) + 1.0)
"""
        + BEFORE_THE_END,
    },
    "_macros.j2": {
        MASK: """\
        if BLOCK_SIZE_M == 128:
            if BLOCK_SIZE_N == 32:
                k_left -= 1
"""
        + MASK
    },
}

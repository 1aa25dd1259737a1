"""As ``gemm_cute_packed``, but the first operand (A, or B where operands are swapped) stays where it is: the kernel
copies its rows to shared memory by whole 16 bytes, and reads its elements from there one by one."""

from __future__ import annotations

from dataclasses import replace

from gemm_tuner.gemm.families import gemm_cute_packed
from gemm_tuner.gemm.families.family import Rates

# 512x50257x768 in tiles of 128 x 256 on an H200: 81 us, and 71 where B is aligned.
FAMILY = replace(
    gemm_cute_packed.FAMILY,
    name="gemm_cute_in_place",
    in_place=True,
    rates=Rates(reached=0.87, full_intensity=67.6, power=0.794, l2_reuse=2.5),
)

"""Operands whose rows do not start at multiples of 16 bytes are copied to aligned rows by a kernel in Triton, then
multiplied as ``gemm_cute`` does. Where rows of C are for no descriptor either, another kernel stores them from sums."""

from __future__ import annotations

from dataclasses import replace

from gemm_tuner.gemm.families import gemm_cute

FAMILY = replace(
    gemm_cute.FAMILY, name="gemm_cute_packed", by_descriptors=False, packs=True, equal_slices_are_views=False
)

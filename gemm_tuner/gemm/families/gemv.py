"""For a few rows or columns, all in one tile: dot products with ordinary instructions."""

from __future__ import annotations

from gemm_tuner.gemm.families.family import Family

FAMILY = Family("gemv", is_tiled=False, by_small_side=True, on_cores=True, adds_in_one_launch=True)

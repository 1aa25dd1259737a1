"""One program per tile, loads through pointers."""

from __future__ import annotations

from gemm_tuner.gemm.families.family import Family

FAMILY = Family("gemm_tile", takes_any_m=True)

"""Operands whose rows do not start at multiples of 16 bytes are copied to aligned rows, then multiplied."""

from __future__ import annotations

from gemm_tuner.gemm.families.family import Family

FAMILY = Family("gemm_packed", packs=True)

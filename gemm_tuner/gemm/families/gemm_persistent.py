"""A persistent kernel: as many programs as fit on the GPU at once, each of which computes several tiles."""

from __future__ import annotations

from gemm_tuner.gemm.families.family import Family

FAMILY = Family("gemm_persistent", by_descriptors=True)

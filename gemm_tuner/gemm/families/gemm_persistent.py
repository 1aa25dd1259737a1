"""As many programs as fit on the GPU, each with several tiles."""

from __future__ import annotations

from gemm_tuner.gemm.families.family import Family

FAMILY = Family("gemm_persistent", by_descriptors=True)

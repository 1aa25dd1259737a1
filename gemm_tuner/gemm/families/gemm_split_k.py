"""Split-K in one launch: the last program of a tile adds the slices of K, in order."""

from __future__ import annotations

from gemm_tuner.gemm.families.family import Family

FAMILY = Family("gemm_split_k", by_descriptors=True, pads_partial_sums=True, adds_in_one_launch=True)

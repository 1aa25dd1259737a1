"""Stream-K: a persistent grid that distributes blocks of K instead of tiles, so that the last wave is full."""

from __future__ import annotations

from gemm_tuner.gemm.families.family import Family

FAMILY = Family(
    "gemm_stream_k",
    by_descriptors=True,
    fills_last_wave=True,
    work_items=lambda tiles, blocks_of_k: tiles * blocks_of_k,
)

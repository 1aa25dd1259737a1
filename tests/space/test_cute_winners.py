"""The rules keep the configurations of gemm_cute that were the best of their size on an H200 (November 2026)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from samples import RULES, device, problem

from gemm_tuner.gemm.config import KernelConfig
from gemm_tuner.gemm.problem import Layout
from gemm_tuner.space import prune, space

LOOP, TURNS, SWAPPED = {"PROGRAMS_PER_SM": 1}, {"PROGRAMS_PER_SM": 1, "PINGPONG": 1}, {"SWAP_AB": 1}
SWAPPED_LOOP = {**SWAPPED, **LOOP}
# (M, N, K), layout of B, (tile M, N, K), (cluster M, N), slices, and what is not at its default
WINNERS = [
    ((5000, 5000, 5000), "row", (256, 160, 64), (1, 2), 1, SWAPPED_LOOP),
    ((5000, 5000, 5000), "row", (256, 152, 64), (2, 1), 1, SWAPPED_LOOP),
    ((5000, 5000, 5000), "col", (256, 208, 64), (1, 2), 1, SWAPPED_LOOP),
    ((1000, 1000, 1000), "row", (64, 144, 64), (4, 1), 1, SWAPPED),
    ((1000, 1000, 1000), "row", (64, 128, 64), (2, 1), 1, {}),
    ((1000, 1000, 1000), "col", (128, 64, 64), (1, 2), 1, {}),
    ((4096, 2304, 7168), "row", (192, 192, 64), (1, 2), 1, SWAPPED_LOOP),
    ((4096, 2304, 7168), "col", (128, 192, 64), (1, 2), 1, TURNS),
    ((4864, 4096, 8192), "row", (256, 208, 64), (2, 1), 1, SWAPPED_LOOP),
    ((4096, 14336, 4096), "row", (128, 160, 64), (2, 1), 1, TURNS),
    ((1536, 1536, 8960), "row", (128, 144, 64), (2, 1), 1, SWAPPED),
    ((16384, 2048, 512), "row", (128, 128, 64), (2, 1), 1, TURNS),
    ((384, 18432, 7168), "row", (192, 96, 64), (2, 1), 1, TURNS),
    ((8192, 8192, 8192), "row", (128, 192, 64), (2, 1), 1, TURNS),
    ((8192, 8192, 8192), "col", (192, 128, 64), (1, 2), 1, TURNS),
    ((256, 7168, 2048), "row", (256, 64, 64), (1, 1), 1, {}),
    ((256, 7168, 2048), "col", (128, 112, 64), (2, 1), 1, {}),
    ((2048, 2048, 2048), "row", (128, 256, 64), (1, 1), 1, {}),
    ((4096, 4096, 4096), "row", (256, 128, 64), (1, 2), 1, LOOP),
    ((17, 5120, 5120), "row", (128, 32, 64), (1, 1), 1, SWAPPED),
    ((17, 5120, 5120), "col", (64, 32, 128), (1, 1), 1, SWAPPED),
    ((200, 3072, 12288), "row", (128, 208, 64), (2, 1), 5, SWAPPED),
    ((96, 5120, 13824), "row", (192, 96, 64), (1, 1), 4, SWAPPED),
    ((96, 5120, 13824), "col", (128, 96, 64), (1, 1), 3, SWAPPED),
    ((64, 8192, 28672), "row", (64, 64, 64), (2, 1), 1, SWAPPED),
    ((128, 4096, 14336), "col", (128, 144, 64), (1, 1), 4, SWAPPED),
    ((160, 2048, 14336), "row", (64, 160, 64), (2, 1), 4, SWAPPED),
    ((640, 640, 20480), "row", (128, 160, 64), (1, 1), 5, SWAPPED),
    ((928, 336, 29032), "row", (192, 160, 64), (2, 1), 11, SWAPPED),
    ((16, 64, 65536), "row", (64, 16, 256), (1, 2), 66, SWAPPED),
    ((8, 1304, 32064), "row", (128, 16, 64), (1, 1), 12, SWAPPED),
    ((34, 5120, 5120), "row", (64, 40, 128), (4, 1), 1, SWAPPED),
    ((17, 5120, 5120), "col", (64, 24, 256), (1, 1), 1, SWAPPED),
    ((2200, 13808, 2688), "row", (128, 200, 64), (2, 1), 1, {**SWAPPED, **TURNS}),
]
ALL_RULES = prune.load_rules(RULES)


@pytest.mark.parametrize(("size", "layout", "tile", "cluster", "slices", "others"), WINNERS)
def test_the_rules_keep_what_was_best(
    size: tuple[int, int, int], layout: str, tile: tuple[int, int, int], cluster: tuple[int, int], slices: int,
    others: dict[str, int],
) -> None:  # fmt: skip
    one = KernelConfig(
        "gemm_cute", *tile, 1, slices, 0, 0, CLUSTER_M=cluster[0], CLUSTER_N=cluster[1], **others  # type: ignore[arg-type]
    )  # fmt: skip
    # The second is there because rules know the most slices of the space.
    rows = pd.DataFrame([one.to_dict(), replace(one, SPLIT_K=16).to_dict()])
    found = prune.apply(
        prune.columns_of(rows), replace(problem(*size), layout_b=Layout(layout)), device("sm_90"), ALL_RULES
    )
    assert found.rejected_by[0] == ""


@pytest.mark.parametrize("k", [*range(4096, 40000, 2300), 11776, 65536])
def test_few_tiles_have_slices_of_k_however_long_it_is(k: int) -> None:
    """A number of slices that leaves SMs idle is cut for a larger one only where the space has one that is not cut."""
    loaded = space.load(RULES / "space_sm_90.yaml", "sm_90")
    for family, sizes in (
        ("gemm_cute", ((16, 64), (8, 128), (64, 64), (3, 56))),
        ("gemm_cute_in_place", ((3, 121), (16, 65))),
    ):
        axes = {**loaded.families[family], "GROUP_SIZE_M": (1,), "PINGPONG": (0,), "SWAP_AB": (1,)}
        axes["SPLIT_K"] = tuple(one for one in axes["SPLIT_K"] if one > 1)
        axes["BLOCK_SIZE_N"] = (16, 32, 64)
        rows = space.frame(replace(loaded, families={family: axes}))
        for m, n in sizes:
            given = problem(m, n, k // 8 * 8 + (n % 8 != 0))
            kept = prune.apply(prune.columns_of(rows), given, device("sm_90"), ALL_RULES, {family: axes}).kept
            assert len(kept), f"{family} {given.key}"


@pytest.mark.parametrize("family", ["gemm_cute", "gemm_cute_packed", "gemm_cute_in_place"])
def test_slices_of_k_can_fill_an_h200(family: str) -> None:
    """As slices_fill_sms assumes of the numbers that the space has."""
    numbers = np.array(space.load(RULES / "space_sm_90.yaml", "sm_90").families[family]["SPLIT_K"])
    assert numbers[:6].tolist() == [1, 2, 3, 4, 5, 6] and (numbers[1:] < 1.3 * numbers[:-1])[6:].all()
    for tiles in range(2, 20):
        filled = tiles * numbers / device("sm_90").num_sms
        assert filled[filled <= 1].max() >= 0.83, tiles

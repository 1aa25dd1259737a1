"""The family gemm_cute_in_place: what its calls launch, and that its kernels are compiled."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from samples import config, problem
from test_cute_family import NEEDS_DSL, TARGET, compiled, launches, script_of

from gemm_tuner.core.records import Status
from gemm_tuner.gemm.config import KernelConfig
from gemm_tuner.gemm.problem import Layout
from gemm_tuner.gemm.workload import WORKLOAD
from gemm_tuner.languages.cute.source import Source


def in_place(**changes: int) -> KernelConfig:
    given = {"family": "gemm_cute_in_place", "num_warps": 0, "num_stages": 0, "PACK_BLOCK": 1024, **changes}
    return config(**given)  # type: ignore[arg-type]


@pytest.mark.parametrize("swap", [0, 1])
@pytest.mark.parametrize("layouts", [(a, b) for a in Layout for b in Layout])
def test_only_the_other_operand_is_packed(layouts: tuple[Layout, Layout], swap: int, tmp_path: Path) -> None:
    size = replace(problem(45, 27, 35), layout_a=layouts[0], layout_b=layouts[1])
    (operands,) = WORKLOAD.operands(size, 0, "randn", 0, "cpu")
    pack, multiply = launches(size, in_place(SWAP_AB=swap), tmp_path)
    first, second, _, *_ = multiply[3]
    stays = operands.b if swap else operands.a
    assert first.shape == ((27, 35) if swap else (45, 35)) and sorted(first.stride()) == sorted(stays.stride())
    assert max(second.stride()) == 64 and second.data_ptr() % 16 == 0
    of_a_tiles, blocks = pack[3][4], pack[2][0]
    assert (of_a_tiles == 0, of_a_tiles == blocks) == (not swap, bool(swap))
    assert multiply[1].values["follows"] is True


def test_without_another_odd_operand_the_product_is_the_only_launch(tmp_path: Path) -> None:
    (alone,) = launches(problem(45, 27, 32), in_place(SWAP_AB=1), tmp_path)
    assert alone[1].values["follows"] is False and alone[1].values["any_rows"] is True
    alone, last = launches(problem(45, 27, 512), in_place(SWAP_AB=1, SPLIT_K=3), tmp_path)
    assert alone[1].builder == "build_unequal" and last[0] == "add_slices_SK3"


@pytest.mark.parametrize("size", [(200, 257, 1001), (200, 257, 1008), (201, 260, 1004), (200, 264, 1001)])
@pytest.mark.parametrize("changes", [{}, {"SPLIT_K": 3}, {"SWAP_AB": 1}])
def test_it_is_checked_at_another_size_with_the_kernel_that_was_compiled(
    changes: dict[str, int], size: tuple[int, int, int], tmp_path: Path
) -> None:
    one = in_place(**changes)
    for layout in Layout:
        asked = replace(problem(*size), layout_b=layout)
        _, other = WORKLOAD.check_problems(asked, one.to_dict(), descriptors=False, interpreted=False)
        assert WORKLOAD.specialization(other, one, TARGET) == WORKLOAD.specialization(asked, one, TARGET)
        sources = set()
        for checked in (asked, other):
            script = script_of(checked, tmp_path, one)
            extents = (checked.m, checked.n, checked.k, checked.batch)
            sources.add(Source.of(script.kernel_of(script.CONFIGS[one.name], extents)).entry)
        assert len(sources) == 1


# Tile, and the rest: in turns, swapped, three warp groups, two beside each other, slices of K, a long block of K.
TILES: tuple[tuple[tuple[int, int, int], dict[str, int]], ...] = (
    ((128, 256, 64), {"PROGRAMS_PER_SM": 1, "CLUSTER_M": 2}),
    ((128, 128, 64), {"PROGRAMS_PER_SM": 1, "PINGPONG": 1, "SWAP_AB": 1}),
    ((192, 96, 64), {"SWAP_AB": 1}),
    ((192, 160, 64), {"SWAP_AB": 1}),
    ((64, 48, 128), {"SWAP_AB": 1, "SPLIT_K": 4}),
    ((64, 16, 256), {}),
    ((192, 32, 64), {}),
    ((256, 128, 64), {"SWAP_AB": 1}),
    ((64, 32, 128), {}),
)


@NEEDS_DSL
@pytest.mark.parametrize(
    "keys", [{}, {"layout_b": Layout.COL}, {"bias": True, "activation": "silu", "dtype_c": "fp32"}]
)
def test_every_tile_is_compiled(keys: dict[str, Any], tmp_path: Path) -> None:
    size = replace(problem(256, 515, 2047), **keys)
    tiles = [
        dict(zip(("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K"), tile, strict=True)) | more for tile, more in TILES
    ]
    results, _ = compiled([(size, in_place(**one)) for one in tiles], tmp_path)
    assert {(one.status, one.message) for one in results} == {(Status.OK, "")}
    assert [one.spills for one in results] == [0] * len(TILES)
    assert all(0 < one.shared_bytes <= 232448 for one in results)  # of an SM of sm_90, for a thread block

"""The model: times that are possible, that grow with the work, and that rank as an H200 does."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from rule_cases import thin_space
from samples import ARCHS, columns, config, device, problem

from gemm_tuner.gemm import descriptors, model
from gemm_tuner.gemm.problem import Layout
from gemm_tuner.gemm.specialization import packed_bytes
from gemm_tuner.space import prune

# Of 11 282 timings of two prototype kernels on an H200 (bf16, event timing, flushed L2): every n-th by rank.
# BLOCK_SIZE_M, _N, _K, GROUP_SIZE_M, num_warps, num_stages, measured us.
MEASURED = {
    (4096, 4096, 4096): (
        (128, 256, 32, 8, 8, 5, 181.5), (256, 64, 64, 1, 8, 3, 299.84), (64, 256, 128, 8, 8, 2, 392.99),
        (256, 32, 64, 8, 4, 3, 520.54), (128, 32, 128, 8, 8, 3, 617.06), (32, 64, 128, 8, 8, 2, 771.87),
        (16, 128, 256, 8, 4, 4, 927.94), (16, 128, 256, 1, 8, 2, 1021.6), (32, 32, 128, 1, 8, 2, 1165.09),
        (32, 16, 256, 1, 4, 3, 1449.12), (32, 16, 256, 1, 8, 3, 2226.82), (16, 16, 32, 8, 8, 2, 8133.73),
    ),
    (256, 7168, 2048): (
        (128, 128, 32, 8, 8, 3, 21.89), (128, 64, 64, 1, 4, 2, 27.84), (256, 32, 64, 1, 4, 2, 31.33),
        (32, 256, 64, 1, 8, 4, 37.12), (32, 128, 64, 8, 8, 3, 43.36), (16, 256, 64, 8, 4, 4, 51.17),
        (128, 16, 128, 8, 4, 4, 58.59), (16, 256, 128, 1, 4, 4, 67.49), (32, 32, 128, 8, 8, 5, 77.41),
        (64, 16, 32, 8, 4, 3, 98.21), (16, 32, 64, 8, 8, 3, 152.35), (16, 16, 32, 8, 8, 2, 450.43),
    ),
}  # fmt: skip
AXES = ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "GROUP_SIZE_M", "num_warps", "num_stages")


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("size", [(1, 1, 1), (17, 5120, 5120), (64, 64, 65536), (8192, 8192, 8192), (2**20, 1, 2**20)])
def test_times_are_finite_and_not_below_the_roofline(arch: str, size: tuple[int, int, int]) -> None:
    for dtype in ("bf16", "fp32"):
        asked = problem(*size, dtype)
        predicted = model.predict_us(thin_space(arch).columns, asked, device(arch))
        assert np.isfinite(predicted).all()
        assert (predicted >= model.roofline_us(asked, device(arch))).all()
        assert model.roofline_us(asked, device(arch)) > 0


@pytest.mark.parametrize("arch", ["sm_90", "gfx942"])
def test_more_work_is_never_faster(arch: str) -> None:
    everything = thin_space(arch).columns
    before = model.predict_us(everything, problem(512, 512, 256), device(arch))
    for bigger in ((512, 512, 300), (512, 512, 8192), (513, 512, 256), (512, 4096, 256)):
        after = model.predict_us(everything, problem(*bigger), device(arch))
        # A small grid reaches less of the bandwidth; more tiles may then move their bytes no slower in all.
        assert (after >= before * (1 if bigger[:2] == (512, 512) else 0.9)).all(), bigger


@pytest.mark.parametrize("arch", ["sm_90", "sm_100"])
@pytest.mark.parametrize("beta", [0.0, 0.5])
def test_odd_rows_of_c_cost_the_sums_that_another_kernel_stores(beta: float, arch: str) -> None:
    """Of packed operands that CuTe DSL multiplies on Blackwell, or where C_in is added: without slices of K, too."""
    of_cute, of_triton = (
        columns(config(family=family, num_warps=warps, num_stages=stages, PACK_BLOCK=2048))
        for family, warps, stages in (("gemm_cute_packed", 0, 0), ("gemm_packed", 4, 4))
    )
    odd, whole = (replace(problem(1024, n, 1023), beta=beta) for n in (1023, 1024))
    for c, adds_up in ((of_cute, beta > 0 or arch == "sm_100"), (of_triton, False)):
        assert (model.split_k_us(c, odd, device(arch)) > 0).all() == adds_up
        assert not model.split_k_us(c, whole, device(arch)).any()


def test_the_roofline_is_arithmetic_or_bytes() -> None:
    h200 = device("sm_90")
    large, thin = problem(8192, 8192, 8192), problem(1, 4096, 4096)
    assert model.roofline_us(large, h200) == pytest.approx(2 * 8192**3 / 989e12 * 1e6)
    assert model.roofline_us(thin, h200) == pytest.approx((4096 + 4096 * 4096 + 4096) * 2 / 4800e9 * 1e6)


def test_split_k_pays_for_a_second_kernel_and_helps_few_tiles() -> None:
    h200 = device("sm_90")
    both = columns(config(), config(SPLIT_K=4))
    whole, split = model.predict_us(both, problem(8192, 8192, 512), h200)
    assert whole < split
    whole, split = model.predict_us(both, problem(64, 64, 65536), h200)
    assert split < whole


def test_odd_rows_pay_for_packing_and_for_storing() -> None:
    """gemm_cute_packed copies what is odd of A and B, and stores odd rows of C without TMA, beside no next tile."""
    one = config(family="gemm_cute_packed", num_warps=0, num_stages=0, PACK_BLOCK=2048, PROGRAMS_PER_SM=1)
    sizes = (1024, 8192, 1024), (1024, 8192, 1023), (1024, 8191, 1023)
    whole, packed, stored = (model.predict_us(columns(one), problem(*size), device("sm_90"))[0] for size in sizes)
    assert whole < packed < stored


def test_an_operand_in_place_is_not_packed() -> None:
    given = {"family": "gemm_cute_in_place", "num_warps": 0, "num_stages": 0, "PACK_BLOCK": 2048}
    a_stays, b_stays = (config(**given, SWAP_AB=swap) for swap in (0, 1))
    few = problem(16, 8191, 1023)  # A takes 33 kB, B 17 MB
    assert packed_bytes(few, b_stays) == (16 * 2048, 0) and packed_bytes(few, a_stays)[0] == 0
    times = model.pack_us(columns(a_stays, b_stays), few, device("sm_90"))
    assert times[0] > 2 * times[1] > 0
    assert model.pack_us(columns(b_stays), problem(16, 8191, 1024), device("sm_90")) == 0


def test_loads_through_pointers_take_longer_the_fewer_neighbours_they_take() -> None:
    assert descriptors.elements_a_load(problem(64, 1002, 4092)) == (4, 2)
    assert descriptors.elements_a_load(problem(64, 1001, 4096, "fp32")) == (4, 1)
    assert descriptors.elements_a_load(replace(problem(33, 48, 64, "fp8_e4m3"), layout_b=Layout.COL)) == (16, 16)
    one = columns(config(family="gemm_tile"))
    sizes = [problem(256, 4096, k) for k in (8192, 8188, 8186, 8191)]
    times = [float(model.predict_us(one, size, device("sm_90"))[0]) for size in sizes]
    assert times == sorted(times) and times[-1] > 1.5 * times[0]
    # What packs such rows loads them through TMA.
    packed = columns(config(family="gemm_cute_packed", num_warps=0, num_stages=0, PACK_BLOCK=2048))
    whole, odd = (
        model.predict_us(packed, size, device("sm_90")) - model.pack_us(packed, size, device("sm_90"))
        for size in (sizes[0], sizes[-1])
    )
    assert odd == pytest.approx(whole, rel=0.01)


def test_blocks_that_an_sm_holds() -> None:
    h200 = device("sm_90")
    held = model.resident_blocks(
        columns(config(), config(BLOCK_SIZE_M=16, BLOCK_SIZE_N=16, BLOCK_SIZE_K=16), config(BLOCK_SIZE_K=1024)),
        problem(4096, 4096, 4096),
        h200,
    )
    assert held[1] > held[0] >= held[2] == 1


@pytest.mark.parametrize("size", MEASURED)
def test_the_ranking_agrees_with_measurements(size: tuple[int, int, int]) -> None:
    rows = MEASURED[size]
    some = columns(*(config(**dict(zip(AXES, row[:-1], strict=True))) for row in rows))
    predicted = model.predict_us(some, problem(*size), device("sm_90"))
    measured = pd.Series([row[-1] for row in rows])
    assert measured.rank().corr(pd.Series(predicted).rank()) > 0.7


def test_one_configuration_and_the_whole_space_agree() -> None:
    candidates, size = thin_space("sm_90"), problem(4096, 4096, 4096)
    whole = model.predict_us(candidates.columns, size, device("sm_90"))
    for row in (0, len(whole) // 3, len(whole) - 1):
        alone = prune.columns_of(candidates.configs.iloc[[row]])
        assert model.predict_us(alone, size, device("sm_90"))[0] == whole[row]


@pytest.mark.parametrize("swapped", [0, 1])
def test_clusters_that_walk_past_an_operand_beyond_l2_read_it_again_for_each_group(swapped: int) -> None:
    """74 MB of B are read for each of the 18 tiles along M, one by one, and twice in groups of 16 (H200, another tile:
    223 and 201 us). 8 MB stay in L2, by the model; so do slices of K; and what is computed at once is read once."""
    changes = {"family": "gemm_cute", "num_warps": 0, "num_stages": 0, "PROGRAMS_PER_SM": 1, "SWAP_AB": swapped}

    def us_by_group(m: int, n: int, k: int, **more: int) -> list[float]:
        rows = pd.DataFrame([config(**changes, **more, GROUP_SIZE_M=group).to_dict() for group in (1, 2, 4, 8, 16)])
        return [float(us) for us in model.predict_us(prune.columns_of(rows), problem(m, n, k), device("sm_90"))]

    large, small = us_by_group(2200, 13808, 2688), us_by_group(1024, 4096, 1024)
    assert large == sorted(large, reverse=True) and large[0] > 1.05 * large[-1]
    assert len(set(small)) == len(set(us_by_group(1024, 1024, 65536))) == 1
    assert len(set(us_by_group(2048, 2048, 16384, SPLIT_K=8))) == 1 < len(set(us_by_group(2048, 2048, 16384)))

"""Every limit and every rule of experience cuts what it says and keeps the rest; no size is left with nothing.

``make test`` takes sizes and types in turns over the architectures, ``make test-all`` all of them on each.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable
from typing import TypeVar

import numpy as np
import pytest
from cute_rule_cases import VALIDITY_CASES, VALIDITY_PLACES
from hypothesis import given, settings
from hypothesis import strategies as st
from rule_cases import (
    BLOCK_SCALES,
    BY_NAME,
    FP8,
    FP32,
    INT8,
    NT,
    TF32,
    TN,
    Case,
    On,
    PlaceCase,
    keeps,
    plain_part,
    rules_of,
    some_rows,
    thin_space,
)
from samples import ARCHS, ROOT, RULES, device, load_sizes, problem

from gemm_tuner.gemm.problem import GemmProblem
from gemm_tuner.gemm.problem_keys import Defaults
from gemm_tuner.space import prune, rule_answers
from gemm_tuner.space.rule import Kind

PUBLIC = [entry.problem for entry in load_sizes(ROOT / "benchmarks" / "public_sizes.yaml", Defaults()).entries]
LARGE = (4096, 4096, 4096)
PERSISTENT = {"family": "gemm_persistent"}
SPLIT_K = {"family": "gemm_split_k", "SPLIT_K": 2}
STREAM_K = {"family": "gemm_stream_k", "PROGRAMS_PER_SM": 1}
GEMV = {"family": "gemv", "BLOCK_SIZE_M": 1, "BLOCK_SIZE_N": 16, "BLOCK_SIZE_K": 256}
THIRDS = {**PERSISTENT, "BLOCK_SIZE_N": 192, "EPILOGUE_SUBTILE": 3}
WIDE = {**PERSISTENT, "BLOCK_SIZE_N": 256}
MIXED_FP8 = {"dtype_a": "fp8_e4m3", "dtype_b": "fp8_e5m2"}
SPECIALISED = {**PERSISTENT, "WARP_SPECIALIZE": 1, "PROGRAMS_PER_SM": 1}

NEVER_SKIPPED = rules_of("validity.py") | rules_of("validity_cute.py")
PACKED = {"family": "gemm_packed", "PACK_BLOCK": 2048}
ODD = (4095, 4097, 1023)

CASES = (
    *VALIDITY_CASES,
    Case("blocks_for_what_packs", On(ODD), PACKED, {**PACKED, "PACK_BLOCK": 128}),
    Case("blocks_for_what_packs", On(ODD), PERSISTENT, {**PERSISTENT, "PACK_BLOCK": 2048}),
    Case("rows_of_c_by_descriptor", On(ODD, keys=NT), {**PACKED, "ROW_STEP": 8}, {**PACKED, "ROW_STEP": 4}),
    Case("rows_of_c_by_descriptor", On(ODD, keys=NT), {**PACKED, "SPLIT_K": 2},
         {**PACKED, "SPLIT_K": 2, "ROW_STEP": 8}),
    Case("rows_of_c_by_descriptor", On(ODD), PACKED, {**PACKED, "ROW_STEP": 8}),
    Case("rows_of_c_by_descriptor", On(ODD, keys=TN | NT), PACKED, {**PACKED, "ROW_STEP": 8}),
    Case("rows_of_c_by_descriptor", On(ODD, "sm_80"), PACKED, {**PACKED, "ROW_STEP": 8}),
    Case("columns_in_thirds", On(ODD), {**PACKED, "BLOCK_SIZE_N": 96, "EPILOGUE_SUBTILE": 3},
         {**PACKED, "BLOCK_SIZE_N": 96}),
    # Partial sums are fp32: 64 KiB of 128 x 128 beside 6 stages of 32 KiB.
    Case("shared_memory_fits_tiles_and_part", On(ODD), {**PACKED, "PROGRAMS_PER_SM": 1, "num_stages": 6},
         {**PACKED, "PROGRAMS_PER_SM": 1, "num_stages": 6, "SPLIT_K": 2}),
    Case("columns_in_thirds", On(LARGE), THIRDS, {**THIRDS, "EPILOGUE_SUBTILE": 2}),
    Case("columns_in_thirds", On(LARGE, "sm_100"), THIRDS, {**THIRDS, "EPILOGUE_SUBTILE": 1}),
    Case("columns_in_thirds", On(LARGE), PERSISTENT, {**PERSISTENT, "EPILOGUE_SUBTILE": 3}),
    Case("columns_in_thirds", On(LARGE), {**THIRDS, "BLOCK_SIZE_N": 96}, {**THIRDS, **STREAM_K}),
    Case("columns_in_thirds", On(LARGE, keys=FP8), THIRDS, {**THIRDS, "family": "gemm_tile"}),
    Case("part_holds_columns", On(LARGE), {**PERSISTENT, "BLOCK_SIZE_N": 64, "EPILOGUE_SUBTILE": 4},
         {**PERSISTENT, "BLOCK_SIZE_N": 32, "EPILOGUE_SUBTILE": 4}),
    Case("part_holds_columns", On(LARGE), {**SPLIT_K, "BLOCK_SIZE_N": 16},
         {**SPLIT_K, "BLOCK_SIZE_N": 16, "EPILOGUE_SUBTILE": 2}),
    Case("few_rows", On((16, 512, 512)), {**GEMV, "BLOCK_SIZE_M": 16}, {**GEMV, "BLOCK_SIZE_M": 8}),
    Case("few_rows", On((512, 3, 512)), {**GEMV, "BLOCK_SIZE_M": 4}, {**GEMV, "BLOCK_SIZE_M": 2}),
    Case("few_rows", On((1, 512, 512)), GEMV, {**GEMV, "BLOCK_SIZE_M": 32}),
    Case("block_divides_scale_group", On(LARGE, keys=BLOCK_SCALES), {"BLOCK_SIZE_K": 128}, {"BLOCK_SIZE_K": 256}),
    Case("two_slices_or_more", On((64, 64, 65536)), SPLIT_K, {**SPLIT_K, "SPLIT_K": 1}),
    Case("programs_for_stream_k", On(LARGE), STREAM_K, {**STREAM_K, "PROGRAMS_PER_SM": 0}),
    Case("specialised_warps", On(LARGE), SPECIALISED, {**SPECIALISED, "num_warps": 8}),
    Case("specialised_warps", On(LARGE), SPECIALISED, {**SPECIALISED, "SPLIT_K": 2}),
    Case("specialised_warps", On(LARGE, "sm_100"), SPECIALISED, {**SPECIALISED, "BLOCK_SIZE_M": 64}),
    Case("specialised_warps", On(LARGE), SPECIALISED, {**SPECIALISED, "PROGRAMS_PER_SM": 0}),
    Case("specialised_warps", On(LARGE), SPECIALISED, {**SPECIALISED, **STREAM_K}),
    Case("specialised_warps", On(LARGE), {**THIRDS, "PROGRAMS_PER_SM": 1},
         {**THIRDS, "PROGRAMS_PER_SM": 1, "WARP_SPECIALIZE": 1}),
    Case("operands_fit_memory", On((200_000, 200_000, 16)), {"SPLIT_K": 1}, {"SPLIT_K": 2}),
    Case("indices_fit_32_bits", On((2**31 - 129, 1, 1)), {"BLOCK_SIZE_M": 128}, {"BLOCK_SIZE_M": 256}),
    Case("indices_fit_32_bits", On((1, 2**31 - 129, 1)), {"BLOCK_SIZE_N": 128}, {"BLOCK_SIZE_N": 256}),
    Case("indices_fit_32_bits", On((1, 1, 2**31 - 129)), {"SPLIT_K": 2}, {"SPLIT_K": 4}),
    Case("indices_fit_32_bits", On((2**20, 2**20, 1)), {"BLOCK_SIZE_M": 32, "BLOCK_SIZE_N": 32},
         {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 16}),
    # gemv has the larger one of M and N in BLOCK_SIZE_N.
    Case("indices_fit_32_bits", On((2**31 - 129, 1, 1)), {**GEMV, "BLOCK_SIZE_N": 128}, {**GEMV, "BLOCK_SIZE_N": 256}),
    Case("split_k_fits_grid", On((16, 16, 2**30)), {"SPLIT_K": 65535}, {"SPLIT_K": 65536}),
    Case("block_holds_dot", On((64, 64, 64)), {"BLOCK_SIZE_M": 16}, {"BLOCK_SIZE_M": 8}),
    Case("block_holds_dot", On((64, 64, 64)), {"BLOCK_SIZE_N": 16}, {"BLOCK_SIZE_N": 8}),
    Case("block_holds_dot", On((64, 64, 64)), {"BLOCK_SIZE_K": 16}, {"BLOCK_SIZE_K": 8}),
    Case("block_holds_dot", On((64, 64, 64), keys=FP8), {"BLOCK_SIZE_K": 32}, {"BLOCK_SIZE_K": 16}),
    Case("block_holds_dot", On((1, 64, 64)), {**GEMV, "BLOCK_SIZE_N": 1}, {**PERSISTENT, "BLOCK_SIZE_N": 1}),
    Case("block_holds_mfma", On((1, 64, 64), "gfx942"), {**GEMV, "matrix_instr_nonkdim": 32},
         {**PERSISTENT, "BLOCK_SIZE_M": 16, "matrix_instr_nonkdim": 32}),
    Case("block_holds_mfma", On((64, 64, 64), "gfx942"), {"BLOCK_SIZE_M": 16},
         {"BLOCK_SIZE_M": 16, "matrix_instr_nonkdim": 32}),
    Case("block_holds_mfma", On((64, 64, 64), "gfx942"), {"BLOCK_SIZE_N": 32, "matrix_instr_nonkdim": 32},
         {"BLOCK_SIZE_N": 16, "matrix_instr_nonkdim": 32}),
    Case("threads_fit_block", On((512, 512, 512)), {"num_warps": 32}, {"num_warps": 64}),
    Case("threads_fit_block", On((512, 512, 512), "gfx942"), {"num_warps": 16}, {"num_warps": 32}),
    # 128 x 256 x 64 in bf16 is 48 KiB a stage; Hopper has 227 KiB.
    Case("shared_memory_fits", On(LARGE), {"BLOCK_SIZE_N": 256, "num_stages": 4},
         {"BLOCK_SIZE_N": 256, "num_stages": 5}),
    Case("shared_memory_fits", On(LARGE), {"BLOCK_SIZE_N": 256, "num_stages": 5, "num_warps": 2},
         {"BLOCK_SIZE_N": 256, "num_stages": 6, "num_warps": 2}),
    Case("shared_memory_fits", On(LARGE, "sm_80"), {"BLOCK_SIZE_N": 256, "num_stages": 4},
         {"BLOCK_SIZE_N": 256, "num_stages": 5}),
    Case("shared_memory_fits", On(LARGE, "sm_90", FP32), {"BLOCK_SIZE_N": 256, "num_stages": 3},
         {"BLOCK_SIZE_N": 256, "num_stages": 4}),
    # tf32 goes through wgmma, with one tile more in flight than fp32 through mma.sync.
    Case("slices_meet_in_one_launch", On((1, 4096, 4096), "gfx942"), {"family": "gemv", "BLOCK_SIZE_M": 1},
         {"family": "gemv", "BLOCK_SIZE_M": 1, "SPLIT_K": 2}),
    Case("shared_memory_fits", On(LARGE, keys=TF32), {"num_stages": 3}, {"num_stages": 4}),
    Case("shared_memory_fits", On(LARGE, "sm_90", FP32), {"num_stages": 4}, {"num_stages": 5}),
    Case("shared_memory_fits", On(LARGE, keys=INT8 | NT), {"BLOCK_SIZE_N": 256, "num_stages": 9},
         {"BLOCK_SIZE_N": 256, "num_stages": 10}),
    # 128 x 256 x 64 in bf16: 4 stages are 192 KiB, the whole of C 64 KiB, a quarter of it 16 KiB.
    Case("shared_memory_fits_tiles_and_part", On(LARGE), {**WIDE, "num_stages": 4}, {**WIDE, "num_stages": 5}),
    Case("shared_memory_fits_tiles_and_part", On(LARGE), {**WIDE, "num_stages": 4},
         {**WIDE, "num_stages": 4, "PROGRAMS_PER_SM": 1}),
    Case("shared_memory_fits_tiles_and_part", On(LARGE),
         {**WIDE, "num_stages": 4, "PROGRAMS_PER_SM": 1, "EPILOGUE_SUBTILE": 2},
         {**WIDE, "num_stages": 4, "PROGRAMS_PER_SM": 1, "EPILOGUE_SUBTILE": 1}),
    Case("shared_memory_fits_tiles_and_part", On(LARGE, "sm_80"), {**WIDE, "num_stages": 4}, {**WIDE, "num_stages": 5}),
    Case("shared_memory_fits_tiles_and_part", On(LARGE),
         {**SPLIT_K, "BLOCK_SIZE_M": 32, "BLOCK_SIZE_K": 128, "num_stages": 6},
         {**SPLIT_K, "BLOCK_SIZE_M": 32, "BLOCK_SIZE_K": 128, "num_stages": 7}),
    # 6 stages of 32 KiB, 32 KiB of C and 48 bytes of barriers: 224 of 227 KiB.
    Case("shared_memory_fits_tiles_and_part", On(LARGE), {**STREAM_K, "num_stages": 6},
         {**STREAM_K, "num_stages": 7}),
    Case("lds_fits", On(LARGE, "gfx942"), {**PERSISTENT, "num_stages": 3}, {**PERSISTENT, "num_stages": 4}),
    Case("lds_fits", On(LARGE, "gfx942"), {"BLOCK_SIZE_M": 256, "BLOCK_SIZE_K": 128, "num_stages": 1},
         {"BLOCK_SIZE_M": 256, "BLOCK_SIZE_K": 128, "num_stages": 2}),
    Case("lds_fits", On(LARGE, "gfx942"), {"BLOCK_SIZE_M": 256, "BLOCK_SIZE_N": 256, "num_stages": 2},
         {"BLOCK_SIZE_M": 256, "BLOCK_SIZE_N": 256, "num_stages": 3}),
    Case("tile_not_beyond_matrix", On((512, 96, 512)), {**THIRDS, "BLOCK_SIZE_N": 96}, THIRDS),
    Case("tile_not_beyond_matrix", On((17, 512, 512)), {"BLOCK_SIZE_M": 32}, {"BLOCK_SIZE_M": 64}),
    Case("tile_not_beyond_matrix", On((1, 512, 512)), {"BLOCK_SIZE_M": 16}, {"BLOCK_SIZE_M": 32}),
    Case("tile_not_beyond_matrix", On((512, 100, 512)), {"BLOCK_SIZE_N": 128}, {"BLOCK_SIZE_N": 256}),
    Case("tile_not_beyond_matrix", On((512, 512, 16)), {"BLOCK_SIZE_K": 32}, {"BLOCK_SIZE_K": 64}),
    Case("accumulator_fits_registers", On(LARGE), {"BLOCK_SIZE_N": 256, "num_warps": 8},
         {"BLOCK_SIZE_N": 256, "num_warps": 4}),
    Case("accumulator_fits_accumulation_registers", On(LARGE, "gfx942"),
         {"BLOCK_SIZE_M": 256, "BLOCK_SIZE_N": 256, "num_warps": 4},
         {"BLOCK_SIZE_M": 256, "BLOCK_SIZE_N": 256, "num_warps": 2}),
    Case("warps_have_work", On((64, 64, 64)), {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 16, "num_warps": 2},
         {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 16, "num_warps": 4}),
    Case("warps_have_work", On((64, 64, 64), "gfx942"), {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 16, "num_warps": 1},
         {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 16, "num_warps": 2}),
    Case("one_warp_for_small_tiles", On((512, 512, 512)), {"BLOCK_SIZE_M": 32, "BLOCK_SIZE_N": 32, "num_warps": 1},
         {"BLOCK_SIZE_M": 32, "BLOCK_SIZE_N": 64, "num_warps": 1}),
    Case("split_k_for_few_tiles", On(LARGE), {"SPLIT_K": 1}, {"SPLIT_K": 2}),
    Case("split_k_for_few_tiles", On((1280, 1280, 65536)), {"SPLIT_K": 4}, {"SPLIT_K": 8}),
    Case("split_k_slices_are_long", On((64, 64, 1024)), {"SPLIT_K": 4}, {"SPLIT_K": 8}),
    Case("split_k_slices_are_long", On((64, 64, 1024)), {"SPLIT_K": 2, "BLOCK_SIZE_K": 128},
         {"SPLIT_K": 4, "BLOCK_SIZE_K": 128}),
    Case("few_tiles_split_k", On((64, 64, 65536)), {"SPLIT_K": 32}, {"SPLIT_K": 16}),
    Case("few_tiles_split_k", On((64, 64, 1024)), {"SPLIT_K": 4}, {"SPLIT_K": 2}),
    Case("group_within_matrix", On((256, 512, 512)), {"GROUP_SIZE_M": 2}, {"GROUP_SIZE_M": 4}),
    Case("group_within_matrix", On((16, 512, 512)), {"GROUP_SIZE_M": 1}, {"GROUP_SIZE_M": 2}),
    Case("group_when_operands_exceed_l2", On((1024, 1024, 1024)), {"GROUP_SIZE_M": 8}, {"GROUP_SIZE_M": 4}),
    Case("stages_have_blocks", On((512, 512, 128)), {"num_stages": 2}, {"num_stages": 3}),
    Case("stages_have_blocks", On((512, 512, 512)), {"SPLIT_K": 2, "num_stages": 4}, {"SPLIT_K": 4, "num_stages": 4}),
    Case("stages_have_blocks", On((512, 512, 128)), {**PERSISTENT, "PROGRAMS_PER_SM": 1}, PERSISTENT),
    Case("large_matrix_large_tile", On((2048, 2048, 64)), {"BLOCK_SIZE_M": 64}, {"BLOCK_SIZE_M": 32}),
    Case("large_matrix_large_tile", On((2048, 2048, 64)), {"num_warps": 4}, {"num_warps": 2}),
    Case("large_matrix_large_tile", On((1024, 1024, 64)), {"BLOCK_SIZE_M": 32}, {"BLOCK_SIZE_M": 16}),
    Case("long_k_long_block", On((512, 512, 512)), {"BLOCK_SIZE_K": 32}, {"BLOCK_SIZE_K": 16}),
    Case("tall_tile_for_tall_matrix", On((129, 512, 512)), {"BLOCK_SIZE_M": 32}, {"BLOCK_SIZE_M": 16}),
    Case("wide_tile_for_wide_matrix", On((512, 1025, 512)), {"BLOCK_SIZE_N": 32}, {"BLOCK_SIZE_N": 16}),
)  # fmt: skip

# The same configuration is kept on the one place and cut on the other: rules look at sizes, types, layouts and GPUs.
PLACES = (
    *VALIDITY_PLACES,
    PlaceCase("type_has_matrix_instruction", {}, On(LARGE, keys=FP8), On(LARGE, "sm_80", FP8)),
    PlaceCase("type_has_matrix_instruction", {}, On(LARGE, keys=FP8), On(LARGE, "gfx942", FP8)),
    PlaceCase("type_has_matrix_instruction", {}, On(LARGE, keys=MIXED_FP8), On(LARGE, "sm_80", MIXED_FP8)),
    PlaceCase("type_has_matrix_instruction", {}, On(LARGE, "sm_80", TF32), On(LARGE, "gfx90a", TF32)),
    PlaceCase("one_matrix_a_call", PERSISTENT, On(LARGE), On(LARGE, keys={"batch": 3})),
    PlaceCase("one_matrix_a_call", SPLIT_K, On(LARGE, "gfx942"), On(LARGE, "gfx942", {"batch": 3})),
    PlaceCase("one_matrix_a_call", STREAM_K, On(LARGE), On(LARGE, keys={"batch": 2})),
    PlaceCase("one_matrix_a_call", GEMV, On((1, 64, 64)), On((1, 64, 64), keys={"batch": 2})),
    # A of K, B of N or K, and C of N columns: 8 elements of bf16 are 16 bytes.
    PlaceCase("rows_fit_descriptors", PERSISTENT, On((4095, 4096, 4096)), On((4096, 4095, 4096))),
    PlaceCase("rows_fit_descriptors", PERSISTENT, On((4095, 4088, 4088)), On((4096, 4096, 4092))),
    PlaceCase("rows_fit_descriptors", SPLIT_K, On((4092, 4096, 4096)), On((4092, 4096, 4096), keys=TN)),
    PlaceCase("rows_fit_descriptors", STREAM_K, On((4096, 4096, 4100), keys=TN),
              On((4096, 4096, 4100), keys={**TN, **NT})),
    PlaceCase("rows_fit_descriptors", PERSISTENT, On((4096, 4096, 4088)), On((4096, 4096, 4088), keys=FP8)),
    PlaceCase("rows_fit_descriptors", PERSISTENT, On((4096, 4095, 4095), "sm_80"), On((4096, 4095, 4095), "sm_100")),
    PlaceCase("columns_in_thirds", THIRDS, On(LARGE, keys=FP8), On(LARGE, keys=BLOCK_SCALES)),
    PlaceCase("columns_in_thirds", THIRDS, On(LARGE), On(LARGE, "sm_80")),
    PlaceCase("columns_in_thirds", THIRDS, On(LARGE), On(LARGE, "gfx942")),
    PlaceCase("few_rows", {**GEMV, "BLOCK_SIZE_M": 16}, On((16, 17, 64)), On((17, 17, 64))),
    PlaceCase("scales_of_whole_rows", GEMV, On((1, 64, 64), keys={**FP8, "scaling": "row_col"}),
              On((1, 64, 64), keys=BLOCK_SCALES)),
    PlaceCase("block_divides_scale_group", {"BLOCK_SIZE_K": 256}, On(LARGE, keys=FP8), On(LARGE, keys=BLOCK_SCALES)),
    PlaceCase("specialised_warps", SPECIALISED, On(LARGE), On(LARGE, keys=FP8)),
    PlaceCase("specialised_warps", SPECIALISED, On(LARGE, keys={"dtype_a": "fp16"}), On(LARGE, keys=TF32)),
    PlaceCase("specialised_warps", SPECIALISED, On(LARGE, "sm_100"), On(LARGE, "sm_80")),
    PlaceCase("split_k_fits_grid", {}, On((64, 64, 64), keys={"batch": 65535}),
              On((64, 64, 64), keys={"batch": 65536})),
    # Rows of B of one byte are turned in registers: one tile of them, whatever the stages.
    PlaceCase("shared_memory_fits", {"num_stages": 10, "BLOCK_SIZE_N": 256}, On(LARGE, keys=INT8),
              On(LARGE, keys=INT8 | NT)),
    PlaceCase("shared_memory_fits", {"num_stages": 4}, On(LARGE, "sm_90", FP32), On(LARGE, "sm_90", TF32)),
    PlaceCase("shared_memory_fits", {"num_stages": 5, "BLOCK_SIZE_N": 256}, On(LARGE, keys=INT8), On(LARGE)),
    PlaceCase("shared_memory_fits_tiles_and_part", {**WIDE, "num_stages": 4}, On(LARGE), On(LARGE, keys=TF32)),
    # A loop over tiles keeps a part of C beside the next tiles' operands, where C is stored through descriptors.
    PlaceCase("shared_memory_fits_tiles_and_part", {**WIDE, "num_stages": 4, "PROGRAMS_PER_SM": 1},
              On(LARGE, "sm_80"), On(LARGE, "sm_90")),
    PlaceCase("shared_memory_fits_tiles_and_part", {**WIDE, "num_stages": 4, "PROGRAMS_PER_SM": 1},
              On(LARGE, "sm_80"), On(LARGE, "sm_100")),
    PlaceCase("group_when_operands_exceed_l2", {"GROUP_SIZE_M": 4}, On(LARGE), On((1024, 1024, 1024))),
    PlaceCase("large_matrix_large_tile", {"BLOCK_SIZE_M": 16}, On((1023, 1024, 64)), On((1024, 1024, 64))),
    PlaceCase("long_k_long_block", {"BLOCK_SIZE_K": 16}, On((16, 16, 511)), On((16, 16, 512))),
    PlaceCase("tall_tile_for_tall_matrix", {"BLOCK_SIZE_M": 16}, On((128, 16, 16)), On((129, 16, 16))),
    PlaceCase("wide_tile_for_wide_matrix", {"BLOCK_SIZE_N": 16}, On((16, 1024, 16)), On((16, 1025, 16))),
    PlaceCase("few_tiles_split_k", {}, On((8192, 8192, 65536)), On((64, 64, 65536))),
    PlaceCase("operands_fit_memory", {}, On((10**5, 10**5, 16)), On((10**6, 10**6, 16))),
    PlaceCase("operands_fit_memory", {}, On((10**5, 10**5, 16)), On((10**5, 10**5, 16), keys={"batch": 10})),
)  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=[f"{case.rule}-{index}" for index, case in enumerate(CASES)])
def test_a_rule_keeps_and_cuts(case: Case) -> None:
    assert keeps(case.rule, case.on, case.kept)
    assert not keeps(case.rule, case.on, case.cut)


@pytest.mark.parametrize("case", PLACES, ids=[f"{case.rule}-{index}" for index, case in enumerate(PLACES)])
def test_a_rule_looks_at_the_place(case: PlaceCase) -> None:
    assert keeps(case.rule, case.kept_on, case.changes)
    assert not keeps(case.rule, case.cut_on, case.changes)


@pytest.mark.parametrize(("straight_to_lds", "most_stages"), [("1", 2), ("0", 3)])
def test_loads_straight_to_lds_take_a_stage_more_on_cdna_4(
    monkeypatch: pytest.MonkeyPatch, straight_to_lds: str, most_stages: int
) -> None:
    """Triton's own switch says which; its default differs between 3.6 and 3.9."""
    monkeypatch.setenv("TRITON_HIP_USE_ASYNC_COPY", straight_to_lds)
    large = [{"BLOCK_SIZE_M": 256, "BLOCK_SIZE_N": 256, "num_stages": stages} for stages in (1, 2, 3, 4)]
    assert [keeps("lds_fits", On(LARGE, "gfx950"), one) for one in large] == [
        stages <= most_stages for stages in (1, 2, 3, 4)
    ]


def test_every_rule_has_a_case_and_a_reason() -> None:
    assert {case.rule for case in (*CASES, *PLACES)} == NEVER_SKIPPED | rules_of("heuristics.py")
    for rule in BY_NAME.values():
        assert rule.why.endswith((".", ").")), rule.name
        assert len(rule.why) <= 120, rule.name


def test_the_files_hold_the_two_kinds() -> None:
    validity = prune.load_rules(RULES, heuristics=False)
    assert {rule.kind for rule in validity} == {Kind.VALIDITY}
    assert {rule.name for rule in validity} == NEVER_SKIPPED
    assert {rule.kind for rule in prune.load_rules(RULES)[len(validity) :]} == {Kind.HEURISTIC}


@pytest.mark.parametrize("arch", ["sm_90", "gfx942"])
@pytest.mark.parametrize("size", [(64, 64, 65536), LARGE, (17, 5120, 5120)])
@pytest.mark.parametrize("count", [8, pytest.param(60, marks=pytest.mark.grid)])
def test_one_configuration_and_the_whole_space_agree(size: tuple[int, int, int], arch: str, count: int) -> None:
    """By every rule, for ``count`` configurations at random; for sixty with ``make test-all``."""
    everything, asked = thin_space(arch).columns, problem(*size)
    for rule in (rule for rule in BY_NAME.values() if rule.backend in ("", device(arch).target.backend)):
        whole = rule_answers.evaluate(rule, everything, asked, device(arch))
        rows = np.random.default_rng(0).choice(len(whole), count, replace=False)
        alone = [
            bool(rule_answers.evaluate(rule, some_rows(everything, [row]), asked, device(arch))[0]) for row in rows
        ]
        assert alone == whole[rows].tolist(), rule.name


PARTS = pytest.mark.parametrize("part", [True, pytest.param(False, marks=pytest.mark.grid)], ids=["part", "rest"])
T = TypeVar("T")


def in_turns(every: Iterable[T], arch: str, of: int, part: bool) -> list[T]:
    """One in ``of`` values, beginning with another one for each architecture; the others if not ``part``."""
    first = ARCHS.index(arch)
    return [one for number, one in enumerate(every) if ((number + first) % of == 0) == part]


TYPES = ({}, FP8, MIXED_FP8, BLOCK_SCALES, INT8, FP32, TF32, {"batch": 3}, NT, TN, {"beta": 1.0, "bias": True})


@PARTS
@pytest.mark.parametrize("arch", ARCHS)
def test_rules_have_an_answer_for_every_type(arch: str, part: bool) -> None:
    """Without a warning of numpy, which is an error here; and only types without a rate cut everything."""
    everything = thin_space(arch)
    for size, keys in in_turns(itertools.product(((1, 1, 1), LARGE, (3, 4095, 4097)), TYPES), arch, 4, part):
        asked = GemmProblem(*size, **keys)
        has_rate = asked.rate_key in dict(device(arch).matmul_tflops)
        kept = prune.apply(everything.columns, asked, device(arch), everything.rules).kept
        assert has_rate or len(kept) == 0
        if size == LARGE:
            assert (len(kept) > 0) == has_rate, keys


def left(arch: str, size: GemmProblem) -> int:
    """How many of a part of the space the rules keep: no more than of the whole."""
    return len(prune.apply(plain_part(arch), size, device(arch), thin_space(arch).rules).kept)


@PARTS
@pytest.mark.parametrize("arch", ARCHS)
def test_every_public_size_has_configurations_everywhere(arch: str, part: bool) -> None:
    """In turns: each size on four of the twelve architectures, in bf16 and fp32 on two each."""
    assert len(PUBLIC) == 20
    sizes = (*((p.m, p.n, p.k) for p in PUBLIC), (1, 1, 1))
    for dtype, size in in_turns(itertools.product(("bf16", "fp32"), sizes), arch, 6, part):
        assert left(arch, problem(*size, dtype)) > 0, (dtype, size)


@PARTS
@pytest.mark.parametrize("arch", ARCHS)
def test_small_matrices_of_any_k_have_configurations(arch: str, part: bool) -> None:
    sides, depths = ((5, 5), (17, 100), (100, 5), (64, 300)), (1, 300, 700, 2048, 4096, 16384)
    for (m, n), k in in_turns(itertools.product(sides, depths), arch, 5, part):
        assert left(arch, problem(m, n, k)) > 0, (m, n, k)


EXTENTS = st.integers(1, 300) | st.integers(1, 20_000)


@settings(max_examples=int(os.environ.get("FUZZ_EXAMPLES", "50")), deadline=None)
@given(st.tuples(EXTENTS, EXTENTS, EXTENTS), st.sampled_from(["fp16", "fp32"]), st.sampled_from(ARCHS))
def test_no_size_is_left_with_nothing(size: tuple[int, int, int], dtype: str, arch: str) -> None:
    assert left(arch, problem(*size, dtype)) > 0

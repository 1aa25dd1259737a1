"""Every rule about kernel families cuts what it says; enough is left to search, and not more than can be searched.

``make test`` searches whole spaces of some architectures at some sizes, ``make test-all`` of all at all.
"""

from __future__ import annotations

import itertools

import pytest
from cute_rule_cases import HEURISTIC_CASES, HEURISTIC_PLACES
from rule_cases import FP8, FP32, NT, TN, Case, On, PlaceCase, keeps, rules_of, some_rows
from samples import ARCHS, device, shipped

from gemm_tuner.gemm.problem import GemmProblem
from gemm_tuner.space import prune

LARGE, SMALL = (4096, 4096, 4096), (512, 512, 512)
PERSISTENT = {"family": "gemm_persistent"}
LOOP = {**PERSISTENT, "PROGRAMS_PER_SM": 1}
SPLIT_K = {"family": "gemm_split_k", "SPLIT_K": 8}
STREAM_K = {"family": "gemm_stream_k", "PROGRAMS_PER_SM": 1, "EPILOGUE_SUBTILE": 2}
SHALLOW = {"BLOCK_SIZE_M": 64, "BLOCK_SIZE_K": 32, "num_stages": 3}
SMALL_LOOP = {**LOOP, "BLOCK_SIZE_M": 64, "BLOCK_SIZE_N": 64}
GEMV = {"family": "gemv", "BLOCK_SIZE_M": 1, "BLOCK_SIZE_N": 8, "BLOCK_SIZE_K": 256}
ROW_GEMV = {"family": "gemv", "BLOCK_SIZE_M": 1, "BLOCK_SIZE_N": 32, "BLOCK_SIZE_K": 64}
# Most configurations of one size that are compiled and timed.
MOST_KEPT = 3000

ODD = (4095, 4097, 1023)
PACKED = {"family": "gemm_packed", "PACK_BLOCK": 2048}
APART = {**PACKED, "ROW_STEP": 8}

CASES = (
    *HEURISTIC_CASES,
    # Rows of 2 N bytes; 4095 rows are 32 tiles of every 8th row too, 1000 are 16 where neighbours are 8.
    Case("rows_apart_for_odd_rows_of_c", On(ODD), APART, {**PACKED, "ROW_STEP": 16}),
    Case("rows_apart_for_odd_rows_of_c", On((4096, 4100, 1023)), {**PACKED, "ROW_STEP": 2}, APART),
    Case("few_rows_beyond_c", On(ODD), APART, {**APART, "BLOCK_SIZE_M": 1024}),
    Case("few_rows_beyond_c", On((1000, 4097, 1023)), PACKED, {**APART, "BLOCK_SIZE_M": 256}),
    # A ring of 64 x 128 x 32 in bf16 is 12 KiB, of 64 x 128 x 128 48 KiB.
    Case("pointers_for_few_rows_are_deep", On((64, 4096, 4096)),
         {"BLOCK_SIZE_M": 64, "BLOCK_SIZE_K": 128, "num_stages": 2}, SHALLOW),
    Case("pointers_for_few_rows_are_deep", On((16, 4096, 4096)), {"BLOCK_SIZE_M": 16, "num_stages": 3},
         {"BLOCK_SIZE_M": 16, "num_stages": 2}),
    Case("half_of_few_rows", On((128, 4096, 4096)), {"BLOCK_SIZE_M": 64}, {"BLOCK_SIZE_M": 32}),
    Case("half_of_few_rows", On((65, 4096, 4096), "gfx942"), {**SPLIT_K, "BLOCK_SIZE_M": 64},
         {**SPLIT_K, "BLOCK_SIZE_M": 32}),
    Case("a_warp_group_for_each_128_rows_and_columns", On(LARGE), PERSISTENT, {**PERSISTENT, "num_warps": 8}),
    Case("a_warp_group_for_each_128_rows_and_columns", On(LARGE), {**STREAM_K, "BLOCK_SIZE_N": 256, "num_warps": 8},
         {**STREAM_K, "BLOCK_SIZE_N": 256}),
    Case("a_warp_group_for_each_128_rows_and_columns", On(LARGE),
         {**PERSISTENT, "BLOCK_SIZE_M": 64, "BLOCK_SIZE_N": 256},
         {**PERSISTENT, "BLOCK_SIZE_M": 64, "BLOCK_SIZE_N": 256, "num_warps": 8}),
    Case("a_warp_group_for_each_128_rows_and_columns", On(LARGE, "sm_100"),
         {**LOOP, "BLOCK_SIZE_N": 256, "WARP_SPECIALIZE": 1}, {**LOOP, "BLOCK_SIZE_N": 256}),
    # Bytes of a row of a block of K: 128 are kept, 64 and 1024 are not, unless K has no more.
    Case("boxes_as_wide_as_the_swizzle", On(LARGE), PERSISTENT, {**PERSISTENT, "BLOCK_SIZE_K": 32}),
    Case("boxes_as_wide_as_the_swizzle", On(LARGE, keys=FP8), {**SPLIT_K, "BLOCK_SIZE_K": 128}, SPLIT_K),
    Case("boxes_as_wide_as_the_swizzle", On(LARGE, "sm_90", FP32), {**STREAM_K, "BLOCK_SIZE_K": 128},
         {**STREAM_K, "BLOCK_SIZE_K": 256}),
    Case("loads_in_flight", On(LARGE), {**PERSISTENT, "num_stages": 2}, {**PERSISTENT, "num_stages": 1}),
    Case("loads_in_flight", On(LARGE), {**SMALL_LOOP, "num_stages": 4}, {**SMALL_LOOP, "num_stages": 3}),
    Case("loads_in_flight", On(LARGE), {**SMALL_LOOP, "num_stages": 2, "PROGRAMS_PER_SM": 2},
         {**SMALL_LOOP, "num_stages": 2}),
    Case("loads_in_flight", On(LARGE), {**SPLIT_K, "BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 32, "num_stages": 8},
         {**SPLIT_K, "BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 32, "num_stages": 6}),
    # Four blocks of K a slice: four stages hold them all.
    Case("loads_in_flight", On((16, 4096, 2048)), {**SPLIT_K, "BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 32, "num_stages": 4},
         {**SPLIT_K, "BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 32, "num_stages": 3}),
    # 16 x 16 tiles of 128 x 128 for 132 SMs.
    Case("persistent_needs_several_tiles", On((2048, 2048, 2048)), LOOP, {**LOOP, "PROGRAMS_PER_SM": 2}),
    Case("persistent_needs_several_tiles", On((1024, 1024, 1024)), PERSISTENT, LOOP),
    Case("persistent_needs_several_tiles", On((1024, 1024, 1024), "gfx942"), {**LOOP, "PROGRAMS_PER_SM": 0}, LOOP),
    # Two of 3 stages of 32 KiB and the half of C fit into 228 KiB; two of 4 stages do not.
    Case("programs_fit_sm", On(LARGE), {**LOOP, "PROGRAMS_PER_SM": 2, "EPILOGUE_SUBTILE": 2, "num_stages": 3},
         {**LOOP, "PROGRAMS_PER_SM": 2, "EPILOGUE_SUBTILE": 2, "num_stages": 4}),
    Case("programs_fit_sm", On(LARGE), {**STREAM_K, "num_stages": 4},
         {**STREAM_K, "num_stages": 4, "PROGRAMS_PER_SM": 2}),
    Case("programs_fit_sm", On(LARGE), {**LOOP, "PROGRAMS_PER_SM": 2, "EPILOGUE_SUBTILE": 2},
         {**LOOP, "PROGRAMS_PER_SM": 2, "BLOCK_SIZE_N": 256}),
    # 48 tiles for 132 SMs: 240 programs are 91 % of two waves, 144 are 55 %.
    Case("slices_fill_waves", On((200, 3072, 12288)), {**PERSISTENT, "SPLIT_K": 5}, {**PERSISTENT, "SPLIT_K": 3}),
    Case("slices_fill_waves", On((129, 12288, 4096)), PERSISTENT, {**PERSISTENT, "SPLIT_K": 2}),
    Case("parts_of_wide_tiles", On(LARGE), {**PERSISTENT, "BLOCK_SIZE_N": 256, "EPILOGUE_SUBTILE": 4},
         {**PERSISTENT, "BLOCK_SIZE_N": 256}),
    Case("parts_of_wide_tiles", On(LARGE), {**LOOP, "EPILOGUE_SUBTILE": 2}, {**PERSISTENT, "EPILOGUE_SUBTILE": 2}),
    Case("parts_of_wide_tiles", On(LARGE), PERSISTENT, {**LOOP, "EPILOGUE_SUBTILE": 4}),
    Case("parts_of_wide_tiles", On(LARGE), {**PERSISTENT, "BLOCK_SIZE_N": 192, "EPILOGUE_SUBTILE": 3},
         {**LOOP, "BLOCK_SIZE_N": 64, "EPILOGUE_SUBTILE": 2}),
    Case("warp_specialisation_on_blackwell", On(LARGE), LOOP, {**LOOP, "WARP_SPECIALIZE": 1}),
    Case("one_part_for_slices", On((64, 64, 65536)), {**SPLIT_K, "BLOCK_SIZE_M": 64},
         {**SPLIT_K, "BLOCK_SIZE_M": 64, "EPILOGUE_SUBTILE": 2}),
    Case("one_part_for_slices", On((64, 64, 65536)), {**SPLIT_K, "EPILOGUE_SUBTILE": 2},
         {**SPLIT_K, "BLOCK_SIZE_N": 64, "EPILOGUE_SUBTILE": 2}),
    # 16 tiles for 132 SMs: from 66 programs on, and up to 528.
    Case("enough_slices_for_the_gpu", On((512, 512, 65536)), SPLIT_K, {**SPLIT_K, "SPLIT_K": 4}),
    Case("enough_slices_for_the_gpu", On((512, 512, 65536)), {**SPLIT_K, "SPLIT_K": 32}, {**SPLIT_K, "SPLIT_K": 64}),
    Case("enough_slices_for_the_gpu", On((64, 64, 65536)), {**SPLIT_K, "SPLIT_K": 64}, {**SPLIT_K, "SPLIT_K": 32}),
    # Slices of K of 2048: 8 of 256 are the most, however many SMs are idle.
    Case("enough_slices_for_the_gpu", On((5, 40, 2048), "gfx942"), SPLIT_K, {**SPLIT_K, "SPLIT_K": 4}),
    # 256 tiles: 124 are left after one wave of 132 programs, more than 7/8; 64 larger ones are half a wave.
    Case("last_wave_is_mostly_empty", On((2048, 2048, 2048)),
         {**STREAM_K, "BLOCK_SIZE_M": 256, "BLOCK_SIZE_N": 256}, STREAM_K),
    # 1024 tiles are 7 waves and 100 tiles, 4096 are 31 waves; 16 tiles are an eighth of one.
    Case("last_wave_is_mostly_empty", On(LARGE), STREAM_K, {**STREAM_K, "BLOCK_SIZE_M": 64, "BLOCK_SIZE_N": 64}),
    Case("last_wave_is_mostly_empty", On((1024, 1024, 1024)), STREAM_K,
         {**STREAM_K, "BLOCK_SIZE_M": 256, "BLOCK_SIZE_N": 256}),
    Case("large_tiles_for_stream_k", On(LARGE), STREAM_K, {**STREAM_K, "BLOCK_SIZE_M": 64}),
    Case("large_tiles_for_stream_k", On(LARGE), {**STREAM_K, "BLOCK_SIZE_M": 64, "BLOCK_SIZE_N": 256},
         {**STREAM_K, "EPILOGUE_SUBTILE": 1}),
    Case("rows_of_gemv", On((3, 4096, 4096)), {**GEMV, "BLOCK_SIZE_M": 4}, {**GEMV, "BLOCK_SIZE_M": 8}),
    Case("rows_of_gemv", On((4096, 1, 4096)), GEMV, {**GEMV, "BLOCK_SIZE_M": 2}),
    # 8 x 256 elements are 16 for each of 128 threads.
    Case("gemv_tile_for_threads", On((1, 4096, 4096)), GEMV, {**GEMV, "BLOCK_SIZE_N": 2}),
    Case("gemv_tile_for_threads", On((1, 4096, 4096)), {**GEMV, "BLOCK_SIZE_N": 16}, {**GEMV, "BLOCK_SIZE_N": 32}),
    Case("gemv_tile_for_threads", On((4, 4096, 4096)), {**GEMV, "BLOCK_SIZE_M": 4},
         {**GEMV, "BLOCK_SIZE_M": 4, "BLOCK_SIZE_N": 16}),
    Case("gemv_tile_for_threads", On((1, 4096, 4096), "gfx942"), GEMV, {**GEMV, "BLOCK_SIZE_N": 2}),
    Case("gemv_tile_along_memory", On((1, 4096, 4096), keys=NT), {**GEMV, "BLOCK_SIZE_K": 128},
         {**GEMV, "BLOCK_SIZE_K": 64}),
    Case("gemv_tile_along_memory", On((1, 4096, 4096)), ROW_GEMV, {**ROW_GEMV, "BLOCK_SIZE_N": 16}),
    Case("gemv_fills_gpu", On((1, 4096, 4096)), {**ROW_GEMV, "SPLIT_K": 2}, {**ROW_GEMV, "BLOCK_SIZE_N": 64}),
    Case("gemv_fills_gpu", On((1, 4096, 1920)), {**GEMV, "SPLIT_K": 8}, {**GEMV, "SPLIT_K": 16}),
    Case("gemv_fills_gpu", On((1, 64, 65536)), {**ROW_GEMV, "SPLIT_K": 16}, {**ROW_GEMV, "SPLIT_K": 8}),
    Case("gemv_fills_gpu", On((1, 64, 100)), {**GEMV, "BLOCK_SIZE_N": 1, "BLOCK_SIZE_K": 128},
         {**GEMV, "BLOCK_SIZE_N": 1}),
    Case("chiplets_for_many_tiles", On(LARGE, "gfx942"), {"NUM_XCDS": 8}, {}),
    Case("chiplets_for_many_tiles", On(SMALL, "gfx942"), PERSISTENT, {**PERSISTENT, "NUM_XCDS": 8}),
    Case("weights_stream_past_few_rows", On((65, 4096, 4096), "gfx942"), SPLIT_K, {**SPLIT_K, "STREAM_B": 1}),
    Case("small_mfma", On(LARGE, "gfx942"), {}, {"matrix_instr_nonkdim": 32}),
    Case("small_mfma", On(LARGE, "gfx90a"), {**PERSISTENT, "matrix_instr_nonkdim": 0},
         {**PERSISTENT, "matrix_instr_nonkdim": 32}),
    Case("parts_of_wide_tiles_on_amd", On(LARGE, "gfx942"), {**LOOP, "BLOCK_SIZE_N": 256, "EPILOGUE_SUBTILE": 2},
         {**LOOP, "EPILOGUE_SUBTILE": 2}),
    # 128 x 128 elements are 64 for each of 256 threads; 256 x 256 are 256.
    Case("warps_for_tile_on_amd", On(LARGE, "gfx942"), {**LOOP, "num_warps": 8},
         {**LOOP, "BLOCK_SIZE_M": 64, "BLOCK_SIZE_N": 64, "num_warps": 8}),
    Case("warps_for_tile_on_amd", On(LARGE, "gfx942"), {**STREAM_K, "BLOCK_SIZE_N": 256},
         {**STREAM_K, "BLOCK_SIZE_M": 256, "BLOCK_SIZE_N": 256}),
)  # fmt: skip

PLACES = (
    *HEURISTIC_PLACES,
    PlaceCase("something_to_pack", PACKED, On(ODD), On((4095, 4096, 1024))),
    PlaceCase("something_to_pack", PACKED, On((4096, 4097, 1024), keys=NT), On((4095, 4096, 1024), keys=NT)),
    PlaceCase("pointers_where_packing_costs_more", {}, On((128, 4097, 1023)), On((129, 4097, 1023))),
    PlaceCase("pointers_where_packing_costs_more", {}, On((333, 333, 333)), On(ODD)),
    PlaceCase("pointers_where_packing_costs_more", {}, On((1420, 2954, 32)), On(ODD)),
    PlaceCase("pointers_where_packing_costs_more", {}, On((512, 4097, 768), keys=NT), On((512, 4097, 767), keys=NT)),
    PlaceCase("pointers_where_packing_costs_more", {}, On(ODD, "sm_80"), On(ODD)),
    PlaceCase("pointers_where_packing_costs_more", {}, On(ODD, keys={"batch": 2}), On(ODD)),
    PlaceCase("pointers_for_few_rows_or_odd_ones", {}, On((128, 4096, 4096)), On((129, 4096, 4096))),
    PlaceCase("pointers_for_few_rows_or_odd_ones", {}, On((4096, 16, 4096)), On(LARGE, "sm_100")),
    PlaceCase("pointers_for_few_rows_or_odd_ones", {}, On((4096, 4095, 4096)), On((4095, 4096, 4096))),
    PlaceCase("pointers_for_few_rows_or_odd_ones", {}, On(LARGE, "sm_80"), On(LARGE)),
    PlaceCase("pointers_for_few_rows_or_odd_ones", {}, On(LARGE, keys={"batch": 2}), On(LARGE)),
    PlaceCase("pointers_for_few_rows_or_odd_ones", {}, On(LARGE, "sm_90", FP32), On(LARGE, keys=FP8)),
    PlaceCase("pointers_for_few_rows_are_deep", SHALLOW, On((129, 4096, 4096)), On((4096, 128, 4096))),
    PlaceCase("pointers_for_few_rows_are_deep", SHALLOW, On((128, 128, 512)), On((128, 128, 1024))),
    PlaceCase("half_of_few_rows", {"BLOCK_SIZE_M": 16}, On((129, 4096, 4096)), On((128, 4096, 4096))),
    PlaceCase("boxes_as_wide_as_the_swizzle", {**PERSISTENT, "BLOCK_SIZE_K": 32}, On((4096, 4096, 32)), On(LARGE)),
    PlaceCase("boxes_as_wide_as_the_swizzle", PERSISTENT, On(LARGE), On(LARGE, keys=FP8)),
    PlaceCase("loads_in_flight", {**PERSISTENT, "num_stages": 1}, On((4096, 4096, 64)), On((4096, 4096, 65))),
    PlaceCase("persistent_needs_several_tiles", LOOP, On((2048, 2048, 64)), On((1024, 2048, 64))),
    PlaceCase("persistent_needs_several_tiles", LOOP, On((2048, 2048, 64)), On((2048, 2048, 64), "gfx942")),
    PlaceCase("warp_specialisation_on_blackwell", {**LOOP, "WARP_SPECIALIZE": 1}, On(LARGE, "sm_100"), On(LARGE)),
    PlaceCase("last_wave_is_mostly_empty", STREAM_K, On((2048, 2048, 2048), "sm_80"), On((2048, 2048, 2048))),
    PlaceCase("rows_of_gemv", {**GEMV, "BLOCK_SIZE_M": 4}, On((4, 4096, 4096)), On((5, 4096, 4096))),
    PlaceCase("rows_of_gemv", {**GEMV, "BLOCK_SIZE_M": 4}, On((4096, 3, 4096)), On((4096, 2, 4096))),
    # Of the larger matrix, which is A where M is the larger side.
    PlaceCase("gemv_tile_along_memory", ROW_GEMV, On((1, 4096, 4096)), On((1, 4096, 4096), keys=NT)),
    PlaceCase("gemv_tile_along_memory", ROW_GEMV, On((4096, 1, 4096), keys=TN), On((4096, 1, 4096))),
    PlaceCase("gemv_tile_along_memory", {**GEMV, "BLOCK_SIZE_K": 128}, On((1, 4096, 4096), keys=NT),
              On((1, 4096, 4096), keys={**NT, **FP8})),
    PlaceCase("gemv_fills_gpu", ROW_GEMV, On((1, 4224, 4096)), On((1, 4096, 4096))),
    PlaceCase("gemv_fills_gpu", ROW_GEMV, On((1, 4096, 4096), "sm_80"), On((1, 4096, 4096), "sm_100")),
    # gfx90a has no chiplets of one GPU to share tiles out to; its space has NUM_XCDS 1 alone.
    PlaceCase("chiplets_for_many_tiles", {}, On(SMALL, "gfx942"), On(LARGE, "gfx942")),
    PlaceCase("weights_stream_past_few_rows", {**SPLIT_K, "STREAM_B": 1}, On((64, 4096, 4096), "gfx942"),
              On((65, 4096, 4096), "gfx942")),
)  # fmt: skip

# What won on an H200 in bf16, NN and NT, among all families (Triton 3.6, nsys, L2 flushed); for 8192x8192x128 NN
# what won among more candidates. A rule that cuts one of them is wrong.
WINNERS = {
    (16, 16, 16): (
        "gemm_tile_BM16_BN16_BK16_GM1_SK1_W2_S2",
        "gemm_tile_BM16_BN16_BK32_GM1_SK1_W2_S2",
    ),
    (1, 4096, 4096): (
        "gemm_tile_BM16_BN128_BK64_GM1_SK4_W8_S5",
        "gemv_BM1_BN4_BK512_GM1_SK1_W4_S3",
    ),
    (16, 4096, 4096): (
        "gemm_tile_BM16_BN32_BK256_GM1_SK1_W2_S4",
        "gemm_tile_BM16_BN32_BK256_GM1_SK1_W4_S6",
    ),
    (32, 8192, 8192): (
        "gemm_tile_BM32_BN64_BK128_GM1_SK1_W2_S5",
        "gemm_tile_BM32_BN64_BK128_GM1_SK1_W4_S6",
    ),
    (64, 8192, 28672): (
        "gemm_persistent_BM64_BN64_BK128_GM1_SK1_W4_S6",
        "gemm_tile_BM64_BN128_BK128_GM1_SK2_W4_S4",
    ),
    (128, 4096, 14336): (
        "gemm_persistent_BM64_BN64_BK128_GM2_SK1_W4_S6",
        "gemm_persistent_BM64_BN64_BK128_GM2_SK1_W4_S6",
    ),
    (256, 7168, 2048): (
        "gemm_persistent_BM128_BN128_BK64_GM2_SK1_W4_S5",
        "gemm_persistent_BM128_BN128_BK64_GM2_SK1_W4_S5",
    ),
    (512, 512, 512): (
        "gemm_persistent_BM64_BN64_BK128_GM1_SK1_W4_S4",
        "gemm_persistent_BM64_BN64_BK128_GM1_SK1_W4_S4",
    ),
    (1000, 1000, 1000): (
        "gemm_persistent_BM64_BN128_BK64_GM8_SK1_W4_S4",
        "gemm_persistent_BM64_BN128_BK64_GM8_SK1_W4_S5",
    ),
    (1024, 1024, 1024): (
        "gemm_persistent_BM64_BN128_BK128_GM1_SK1_W4_S4",
        "gemm_persistent_BM64_BN128_BK128_GM1_SK1_W4_S4",
    ),
    (2048, 2048, 2048): (
        "gemm_persistent_BM128_BN256_BK64_GM1_SK1_W8_S3_ES4",
        "gemm_persistent_BM128_BN256_BK64_GM4_SK1_W8_S3_ES4",
    ),
    (4096, 4096, 4096): (
        "gemm_persistent_BM128_BN256_BK64_GM1_SK1_W8_S3_ES2_PS1",
        "gemm_persistent_BM128_BN256_BK64_GM4_SK1_W8_S4_ES2_PS1",
    ),
    (4096, 2304, 7168): (
        "gemm_persistent_BM128_BN192_BK64_GM2_SK1_W8_S4_ES3",
        "gemm_persistent_BM128_BN128_BK64_GM4_SK1_W4_S6_PS1",
    ),
    (4864, 4096, 8192): (
        "gemm_persistent_BM128_BN256_BK64_GM16_SK1_W8_S4_ES2_PS1",
        "gemm_persistent_BM128_BN256_BK64_GM16_SK1_W8_S4_ES2_PS1",
    ),
    (4096, 14336, 4096): (
        "gemm_persistent_BM128_BN256_BK64_GM16_SK1_W8_S4_ES2_PS1",
        "gemm_persistent_BM128_BN256_BK64_GM16_SK1_W8_S4_ES2_PS1",
    ),
    (8192, 8192, 128): (
        "gemm_persistent_BM128_BN128_BK64_GM8_SK1_W4_S3_ES2_PS2",
        "gemm_persistent_BM64_BN128_BK128_GM1_SK1_W4_S2_ES2_PS2",
    ),
    (8192, 8192, 8192): (
        "gemm_persistent_BM128_BN256_BK64_GM16_SK1_W8_S3_ES2_PS1",
        "gemm_persistent_BM128_BN256_BK64_GM8_SK1_W8_S4_ES2_PS1",
    ),
    (5000, 5000, 5000): (
        "gemm_persistent_BM128_BN256_BK64_GM16_SK1_W8_S3_ES2",
        "gemm_persistent_BM128_BN256_BK64_GM8_SK1_W8_S4_ES4",
    ),
    (64, 64, 65536): (
        "gemm_tile_BM64_BN16_BK128_GM1_SK32_W4_S6",
        "gemm_tile_BM64_BN16_BK128_GM1_SK32_W4_S6",
    ),
    (17, 5120, 5120): (
        "gemm_split_k_BM16_BN128_BK64_GM2_SK3_W4_S5",
        "gemm_split_k_BM32_BN128_BK128_GM1_SK3_W4_S4",
    ),
}


@pytest.mark.parametrize("case", CASES, ids=[f"{case.rule}-{index}" for index, case in enumerate(CASES)])
def test_a_rule_keeps_and_cuts(case: Case) -> None:
    assert keeps(case.rule, case.on, case.kept)
    assert not keeps(case.rule, case.on, case.cut)


@pytest.mark.parametrize("case", PLACES, ids=[f"{case.rule}-{index}" for index, case in enumerate(PLACES)])
def test_a_rule_looks_at_the_place(case: PlaceCase) -> None:
    assert keeps(case.rule, case.kept_on, case.changes)
    assert not keeps(case.rule, case.cut_on, case.changes)


def test_every_rule_about_families_has_a_case() -> None:
    assert {case.rule for case in (*CASES, *PLACES)} == rules_of("families.py") | rules_of("families_cute.py")


def test_a_family_without_the_axis_is_not_asked_for_chiplets() -> None:
    """gemv and gemm_split_k have no NUM_XCDS to choose: many tiles must not cut them."""
    candidates, size = shipped("gfx942"), GemmProblem(1, 28672, 4096)
    kept = prune.apply(candidates.columns, size, device("gfx942"), candidates.rules).kept
    assert "gemv" in candidates.columns.family[kept]


# The sizes of the public list of which most and fewest are left.
EXTREMES = ((16, 16, 16), (1, 4096, 4096), (64, 64, 65536), (1000,) * 3, (5000,) * 3, (8192,) * 3)
# (size, layouts) by architecture: those that ``make test`` takes.
SEARCHED = {
    "sm_90": {*itertools.product(EXTREMES, ("NN",)), ((5000,) * 3, "NT")},
    "sm_100": {((5000,) * 3, "NN")}, "sm_80": {((8192,) * 3, "NN"), ((16, 16, 16), "NN")},
    "gfx942": {((1000,) * 3, "NN"), ((8192,) * 3, "NN")}, "gfx1100": {((5000,) * 3, "NN")},
}  # fmt: skip


@pytest.mark.parametrize(
    ("arch", "size", "layouts"),
    [
        pytest.param(arch, size, layouts, marks=() if (size, layouts) in SEARCHED.get(arch, ()) else pytest.mark.grid)
        for arch, size, layouts in itertools.product(ARCHS, EXTREMES, ("NN", "NT"))
        if layouts == "NN" or arch == "sm_90"
    ],
)
def test_what_is_left_can_be_searched(arch: str, size: tuple[int, int, int], layouts: str) -> None:
    """That some are left of every public size, test_rules has."""
    candidates, problem = shipped(arch), GemmProblem(*size, **(NT if layouts == "NT" else {}))
    kept = prune.apply(candidates.columns, problem, device(arch), candidates.rules).kept
    assert 1 <= len(kept) <= MOST_KEPT


def test_winners_are_kept() -> None:
    candidates, h200 = shipped("sm_90"), device("sm_90")
    row_of = {name: row for row, name in enumerate(candidates.names)}
    cut = []
    for size, names in WINNERS.items():
        for name, layouts in zip(names, ({}, NT), strict=True):
            pruned = prune.apply(
                some_rows(candidates.columns, [row_of[name]]), GemmProblem(*size, **layouts), h200, candidates.rules
            )
            cut += [(size, name, rule) for rule in pruned.rejected_by if rule]
    assert cut == []

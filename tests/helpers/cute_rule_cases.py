"""What the rules about gemm_cute keep and cut, as ``rule_cases`` has it."""

from __future__ import annotations

from rule_cases import BLOCK_SCALES, FP8, FP32, INT8, NT, TN, Case, On, PlaceCase

LARGE = (4096, 4096, 4096)
CUTE = {"family": "gemm_cute", "num_warps": 0, "num_stages": 0}
LOOP = {**CUTE, "PROGRAMS_PER_SM": 1}
TURNS = {**LOOP, "PINGPONG": 1}
SWAPPED = {**CUTE, "SWAP_AB": 1}
PACKED = {**CUTE, "family": "gemm_cute_packed", "PACK_BLOCK": 2048}
ODD = (1023, 4097, 1023)
IN_PLACE = {**PACKED, "family": "gemm_cute_in_place"}
SWAPPED_IN_PLACE = {**IN_PLACE, "SWAP_AB": 1}
OF_FEW = {**SWAPPED_IN_PLACE, "BLOCK_SIZE_M": 64, "BLOCK_SIZE_N": 64}
OF_TWELVE = {**SWAPPED_IN_PLACE, "BLOCK_SIZE_M": 192, "BLOCK_SIZE_N": 96}
ONE_TILE = {**OF_FEW, "BLOCK_SIZE_N": 16}
BESIDE = {"BLOCK_SIZE_M": 192, "BLOCK_SIZE_N": 160}
FP8_NT = {**FP8, **NT}
MIXED = {**FP8_NT, "dtype_b": "fp8_e5m2"}
BLACKWELL = On(LARGE, "sm_100")
FEW = On((200, 3072, 12288), keys=FP8_NT)
BLOCKS = On(LARGE, keys={**BLOCK_SCALES, **NT})
OF_BLOCKS = {**CUTE, "BLOCK_SIZE_M": 128, "BLOCK_SIZE_N": 128, "BLOCK_SIZE_K": 128}
NARROW = {**SWAPPED, "BLOCK_SIZE_M": 64, "BLOCK_SIZE_N": 16}
EIGHTS = {**SWAPPED, "BLOCK_SIZE_M": 64, "BLOCK_SIZE_N": 104, "BLOCK_SIZE_K": 128}
TALL = {**SWAPPED, "BLOCK_SIZE_M": 256, "PROGRAMS_PER_SM": 1}
PAIRS = {**LOOP, "BLOCK_SIZE_M": 256, "CLUSTER_M": 2}  # two SMs a tile

VALIDITY_CASES = (
    Case("clusters_of_class", On(LARGE), {**CUTE, "CLUSTER_M": 2}, {"CLUSTER_M": 2}),
    Case("clusters_of_class", On(LARGE), {}, {"PINGPONG": 1}),
    Case("clusters_of_class", On(LARGE), SWAPPED, {"SWAP_AB": 1}),
    Case("tile_of_class", On(LARGE), {**CUTE, "BLOCK_SIZE_N": 144}, {**CUTE, "BLOCK_SIZE_N": 272}),
    Case("tile_of_class", On(LARGE), {**CUTE, **BESIDE}, {**CUTE, "BLOCK_SIZE_M": 192, "BLOCK_SIZE_N": 144}),
    Case("tile_of_class", On(LARGE), {**CUTE, "BLOCK_SIZE_M": 320, "BLOCK_SIZE_N": 160},
         {**CUTE, "BLOCK_SIZE_M": 320, "BLOCK_SIZE_N": 192}),
    Case("tile_of_class", On(LARGE), {**TURNS, "BLOCK_SIZE_N": 208}, {**TURNS, "BLOCK_SIZE_N": 224}),
    Case("tile_of_class", On(LARGE), {**TURNS, "BLOCK_SIZE_M": 192}, {**TURNS, **BESIDE}),
    Case("tile_of_class", On(LARGE), {**CUTE, "BLOCK_SIZE_M": 256}, {**TURNS, "BLOCK_SIZE_M": 256}),
    # What the compiler does not survive.
    Case("warp_groups_beside_each_other", On(LARGE), {**CUTE, "BLOCK_SIZE_M": 192}, {**CUTE, **BESIDE}),
    Case("warp_groups_beside_each_other", On(LARGE), {**SWAPPED, **BESIDE}, {**CUTE, "BLOCK_SIZE_M": 320}),
    Case("warp_groups_beside_each_other", On(LARGE, keys={**NT, **TN}), {**CUTE, **BESIDE}, {**SWAPPED, **BESIDE}),
    Case("cluster_of_class", On(LARGE), {**CUTE, "CLUSTER_M": 4, "CLUSTER_N": 2},
         {**CUTE, "CLUSTER_M": 4, "CLUSTER_N": 4}),
    Case("cluster_of_class", On(LARGE), {**CUTE, "CLUSTER_M": 8}, {**CUTE, "CLUSTER_M": 3}),
    Case("cluster_of_class", BLACKWELL, {**LOOP, "CLUSTER_M": 2, "CLUSTER_N": 2},
         {**LOOP, "CLUSTER_M": 4, "CLUSTER_N": 2}),
    Case("columns_in_eights", FEW, {**SWAPPED, "BLOCK_SIZE_N": 104},
         {**CUTE, "BLOCK_SIZE_N": 104}),
    Case("columns_in_eights", On((200, 3072, 12288)), {**SWAPPED, "BLOCK_SIZE_N": 104},
         {**CUTE, "BLOCK_SIZE_N": 104}),
    Case("columns_in_eights", On((200, 3072, 12288), keys=TN), {**SWAPPED, "BLOCK_SIZE_N": 96},
         {**SWAPPED, "BLOCK_SIZE_N": 104}),
    Case("tile_of_class", On(LARGE, keys=FP8_NT), {**SWAPPED, "BLOCK_SIZE_N": 104},
         {**SWAPPED, "BLOCK_SIZE_M": 192, "BLOCK_SIZE_N": 104}),
    Case("cluster_of_class", On(LARGE), {**CUTE, "CLUSTER_N": 4}, {**CUTE, "CLUSTER_N": 3}),
    Case("pingpong_is_persistent", On(LARGE), TURNS, {**CUTE, "PINGPONG": 1}),
    Case("pingpong_is_persistent", On(LARGE), CUTE, {**CUTE, "PROGRAMS_PER_SM": 2}),
    Case("block_of_k_of_class", On(LARGE), {**CUTE, "BLOCK_SIZE_K": 80}, {**CUTE, "BLOCK_SIZE_K": 72}),
    Case("block_of_k_of_class", On(LARGE, keys=FP8_NT), {**CUTE, "BLOCK_SIZE_K": 96}, {**CUTE, "BLOCK_SIZE_K": 80}),
    # 120 is 5 slices of 24 and no two of a block of K; 200 is three of a block, and no 4 equal ones.
    Case("slices_of_k_of_class", On((200, 3072, 120)), {**CUTE, "SPLIT_K": 5}, {**CUTE, "SPLIT_K": 2}),
    Case("slices_of_k_of_class", On((200, 3072, 200)), {**CUTE, "SPLIT_K": 3}, {**CUTE, "SPLIT_K": 4}),
    # 120 is five slices of 24, which are views; of what is packed each has a block of K or more.
    Case("slices_of_k_of_class", On((200, 3072, 120)), {**CUTE, "SPLIT_K": 5}, {**PACKED, "SPLIT_K": 5}),
    Case("blocks_for_what_packs", On((4095, 4097, 1023)), PACKED, {**PACKED, "PACK_BLOCK": 0}),
    Case("operand_in_place", On(ODD), {**IN_PLACE, "CLUSTER_M": 2}, {**IN_PLACE, "CLUSTER_N": 2}),
    Case("operand_in_place", On(ODD), IN_PLACE, {**IN_PLACE, "BLOCK_SIZE_K": 48}),
    # 128 x 256 sums are 128 for each of 256 threads, beside 16 words of the operand; 256 x 192 are 192, beside 32.
    Case("operand_in_place", On(ODD), {**IN_PLACE, "BLOCK_SIZE_M": 128, "BLOCK_SIZE_N": 256},
         {**IN_PLACE, "BLOCK_SIZE_M": 256, "BLOCK_SIZE_N": 192}),
    Case("operand_in_place", On(ODD), {**IN_PLACE, "BLOCK_SIZE_M": 64, "BLOCK_SIZE_K": 128},
         {**IN_PLACE, "BLOCK_SIZE_K": 128}),
    Case("clusters_of_class", On((4095, 4097, 1023)), {**PACKED, "CLUSTER_M": 2, "SWAP_AB": 1}, {"CLUSTER_M": 2}),
    # C takes 58 GB, and sums of it 116.
    Case("operands_fit_memory", On((170_000, 170_001, 17)),
         {**PACKED, "family": "gemm_packed", "num_warps": 4, "num_stages": 3}, PACKED),
    # Two stages of 256 x 192 x 64 take 112 KiB, two of 256 x 192 x 128 take 224 KiB.
    # Of C in fp32 four parts of 8 columns take 16 KiB, beside which the library has room for one block of K, not two.
    Case("stages_of_class", On(LARGE, keys={"dtype_c": "fp32"}),
         {**SWAPPED, "BLOCK_SIZE_M": 256, "BLOCK_SIZE_N": 152, "BLOCK_SIZE_K": 128},
         {**SWAPPED, "BLOCK_SIZE_M": 256, "BLOCK_SIZE_N": 168, "BLOCK_SIZE_K": 128}),
    Case("stages_of_class", On(LARGE), {**CUTE, "BLOCK_SIZE_M": 256, "BLOCK_SIZE_N": 192},
         {**CUTE, "BLOCK_SIZE_M": 256, "BLOCK_SIZE_N": 192, "BLOCK_SIZE_K": 128}),
    # 256 x 208 sums are 208 for each of 256 threads, 256 x 224 are 224.
    Case("sums_fit_registers", On(LARGE), {**CUTE, "BLOCK_SIZE_M": 256, "BLOCK_SIZE_N": 208},
         {**CUTE, "BLOCK_SIZE_M": 256, "BLOCK_SIZE_N": 224}),
    Case("sums_fit_registers", On(LARGE, keys=FP8_NT), {**CUTE, "BLOCK_SIZE_M": 256, "BLOCK_SIZE_N": 208},
         {**CUTE, "BLOCK_SIZE_M": 256, "BLOCK_SIZE_N": 224}),
    Case("scales_of_blocks", BLOCKS, OF_BLOCKS, {**OF_BLOCKS, "BLOCK_SIZE_K": 64}),
    Case("scales_of_blocks", BLOCKS, {**OF_BLOCKS, "PROGRAMS_PER_SM": 1},
         {**OF_BLOCKS, "PROGRAMS_PER_SM": 1, "PINGPONG": 1}),
    Case("scales_of_blocks", BLOCKS, {**OF_BLOCKS, "BLOCK_SIZE_M": 192},
         {**OF_BLOCKS, "BLOCK_SIZE_M": 192, "BLOCK_SIZE_N": 160}),
    # 128 sums and 64 products for each of 256 threads; with 144 columns 144 and 72.
    Case("sums_fit_registers", BLOCKS, {**OF_BLOCKS, "BLOCK_SIZE_M": 256},
         {**OF_BLOCKS, "BLOCK_SIZE_M": 256, "BLOCK_SIZE_N": 144}),
    Case("scales_of_blocks", BLOCKS, {**OF_BLOCKS, "SWAP_AB": 1, "BLOCK_SIZE_N": 80},
         {**OF_BLOCKS, "SWAP_AB": 1, "BLOCK_SIZE_N": 96}),
    Case("scales_of_blocks", BLOCKS, {**OF_BLOCKS, "SWAP_AB": 1, "BLOCK_SIZE_M": 192, "BLOCK_SIZE_N": 32},
         {**OF_BLOCKS, "SWAP_AB": 1, "BLOCK_SIZE_M": 192, "BLOCK_SIZE_N": 64}),
    # 1280 is two slices of five blocks with a scale each, and no three equal ones, of which each has a block.
    Case("slices_of_k_of_class", On((200, 3072, 1280), keys={**BLOCK_SCALES, **NT}), {**OF_BLOCKS, "SPLIT_K": 2},
         {**OF_BLOCKS, "SPLIT_K": 16}),
    Case("tile_of_class", BLACKWELL, PAIRS, {**PAIRS, "CLUSTER_M": 1}),
    Case("tile_of_class", BLACKWELL, {**PAIRS, "BLOCK_SIZE_N": 224}, {**PAIRS, "BLOCK_SIZE_N": 240}),
    Case("tile_of_class", BLACKWELL, LOOP, {**LOOP, "BLOCK_SIZE_M": 192, "CLUSTER_M": 2}),
    Case("tile_of_class", BLACKWELL, LOOP, TURNS),
    # Two blocks of 128 x 256 x 256 take 384 KiB; of 256 x 256 x 256 each of two SMs has 256 KiB, of x 128 half as many.
    Case("stages_of_class", BLACKWELL, {**PAIRS, "BLOCK_SIZE_N": 256, "BLOCK_SIZE_K": 128},
         {**PAIRS, "BLOCK_SIZE_N": 256, "BLOCK_SIZE_K": 256}),
    Case("stages_of_class", BLACKWELL, {**LOOP, "BLOCK_SIZE_K": 128},
         {**LOOP, "BLOCK_SIZE_N": 256, "BLOCK_SIZE_K": 256}),
)  # fmt: skip

VALIDITY_PLACES = (
    PlaceCase("architectures_of_class", CUTE, On(LARGE), On(LARGE, "sm_120")),
    PlaceCase("architectures_of_class", LOOP, On(LARGE, "sm_100"), On(LARGE, "sm_80")),
    PlaceCase("types_of_class", LOOP, On(LARGE, keys=MIXED), On(LARGE, "sm_100", MIXED)),
    PlaceCase("fp8_along_k", LOOP, On(LARGE, "sm_103", FP8), On(LARGE, keys=FP8)),
    PlaceCase("pingpong_is_persistent", CUTE, On(LARGE), On(LARGE, "sm_100")),
    PlaceCase("warp_groups_beside_each_other", {**CUTE, "BLOCK_SIZE_M": 320}, On(LARGE, "sm_100"), On(LARGE)),
    PlaceCase("sums_fit_registers", {**LOOP, "BLOCK_SIZE_M": 256, "BLOCK_SIZE_N": 256, "CLUSTER_M": 2},
              On(LARGE, "sm_100"), On(LARGE)),
    PlaceCase("types_of_class", CUTE, On(LARGE, keys=FP8_NT), On(LARGE, keys=FP32)),
    PlaceCase("types_of_class", CUTE, On(LARGE, keys={"dtype_c": "fp32"}), On(LARGE, keys=INT8)),
    PlaceCase("fp8_along_k", CUTE, On(LARGE, keys=FP8_NT), On(LARGE, keys=FP8)),
    PlaceCase("fp8_along_k", CUTE, On(LARGE, keys=TN), On(LARGE, keys={**FP8_NT, **TN})),
    PlaceCase("scales_of_blocks", CUTE, On(LARGE, keys={**FP8_NT, "scaling": "row_col"}), BLOCKS),
    PlaceCase("scales_of_blocks", {**LOOP, "BLOCK_SIZE_K": 128}, BLOCKS,
              On(LARGE, "sm_100", {**BLOCK_SCALES, **NT})),
    PlaceCase("rows_fit_descriptors", CUTE, On((4095, 4096, 4096)), On((4096, 4095, 4096))),
    PlaceCase("one_matrix_a_call", PACKED, On((4095, 4097, 1023)), On((4095, 4097, 1023), keys={"batch": 2})),
    PlaceCase("fp8_along_k", PACKED, On((512, 512, 511), keys=FP8_NT), On((512, 512, 511), keys=FP8)),
    PlaceCase("columns_in_eights", EIGHTS, FEW, On((200, 3072, 12288), keys={**FP8_NT, "beta": 1.0})),
    PlaceCase("slices_of_k_of_class", {**CUTE, "SPLIT_K": 2}, On(LARGE), On(LARGE, keys={"batch": 2})),
)  # fmt: skip

HEURISTIC_CASES = (
    Case("largest_odd_operand_in_place", On(ODD), {**IN_PLACE, "SWAP_AB": 1}, IN_PLACE),
    Case("largest_odd_operand_in_place", On((1024, 512, 4095)), IN_PLACE, {**IN_PLACE, "SWAP_AB": 1}),
    Case("largest_odd_operand_in_place", On((512, 4097, 1024)), {**IN_PLACE, "SWAP_AB": 1}, IN_PLACE),
    Case("little_beyond_matrix", On(LARGE), CUTE, {**CUTE, "CLUSTER_M": 64}),
    # 2 x 22 tiles of 128 x 144 are 1.32 times 200 x 3072.
    Case("little_beyond_matrix", On((200, 3072, 12288)), {**CUTE, "BLOCK_SIZE_N": 144, "SPLIT_K": 3},
         {**CUTE, "BLOCK_SIZE_N": 144}),
    # 17 rows are half of 32 and less than a third of 64.
    Case("little_beyond_matrix", On((17, 5120, 5120)), {**SWAPPED, "BLOCK_SIZE_N": 32},
         {**SWAPPED, "BLOCK_SIZE_N": 64}),
    # 18 rows are more than half of 32, and 26 tiles of 256 columns 2 % more than 6544.
    Case("little_beyond_matrix", On((18, 6544, 4096)), {**SWAPPED, "BLOCK_SIZE_M": 256, "BLOCK_SIZE_N": 32},
         {**SWAPPED, "BLOCK_SIZE_N": 64}),
    # 37 rows are three quarters of 48, and 50 of 64; two of 32 are as much, and read the other operand twice.
    Case("little_beyond_matrix", On((37, 10744, 960)), {**SWAPPED, "BLOCK_SIZE_N": 48},
         {**SWAPPED, "BLOCK_SIZE_N": 64}),
    Case("little_beyond_matrix", On((50, 8192, 3072)), {**SWAPPED, "BLOCK_SIZE_N": 64},
         {**SWAPPED, "BLOCK_SIZE_N": 32}),
    # 6 tiles of 64 x 32 are 1.46 times 367 x 23, 2 of 256 x 32 1.94 times; 1.25 and what the 23 rows leave are 1.74.
    Case("little_beyond_matrix", On((23, 367, 1923)), {**SWAPPED, "BLOCK_SIZE_M": 64, "BLOCK_SIZE_N": 32},
         {**SWAPPED, "BLOCK_SIZE_M": 256, "BLOCK_SIZE_N": 32}),
    # 70 rows take 72 of gemm_cute, which the other families do not have.
    Case("little_beyond_matrix", On((70, 10742, 961)), {**SWAPPED, **PACKED, "BLOCK_SIZE_N": 96},
         {**SWAPPED, "BLOCK_SIZE_N": 96}),
    Case("little_beyond_matrix", On((10742, 70, 961), keys=TN), {**IN_PLACE, "BLOCK_SIZE_N": 96},
         {**IN_PLACE, "BLOCK_SIZE_N": 128}),
    Case("one_order_of_operands", On(LARGE), {**SWAPPED, **BESIDE}, SWAPPED),
    Case("one_order_of_operands", On(LARGE, keys=NT), {**SWAPPED, **BESIDE}, {**CUTE, **BESIDE}),
    Case("one_order_of_operands", On(LARGE), {**TURNS, "BLOCK_SIZE_N": 160}, {**TURNS, "BLOCK_SIZE_N": 144}),
    # 128 x 96 takes all of 96 columns; swapped, a quarter of it is beyond them.
    Case("one_order_of_operands", On((4096, 96, 4096), keys=NT), {**CUTE, "BLOCK_SIZE_N": 96},
         {**SWAPPED, "BLOCK_SIZE_N": 128}),
    # Swapped, two blocks of 208 columns along M compute 1.33 times C; as they are, 1.24 times.
    Case("one_order_of_operands", On((320, 200, 4096), keys=NT), {**CUTE, "BLOCK_SIZE_M": 64, "BLOCK_SIZE_N": 208},
         {**CUTE, "BLOCK_SIZE_M": 64, "BLOCK_SIZE_N": 160}),
    # 8 x 16 tiles as they are, and 10 x 13 swapped: in pairs along M 140, more than a wave.
    Case("one_order_of_operands", On((1024, 1280, 8192), keys=NT), {**CUTE, "BLOCK_SIZE_N": 80, "CLUSTER_N": 2},
         {**CUTE, "BLOCK_SIZE_N": 80}),
    # 16 x 4 clusters of two: 4 clusters are a whole side, 8 are the same. 32 x 32 tiles are not walked one by one.
    Case("orders_of_clusters", On((1024, 1280, 8192)),
         {**CUTE, "BLOCK_SIZE_M": 64, "BLOCK_SIZE_N": 160, "CLUSTER_N": 2, "GROUP_SIZE_M": 4},
         {**CUTE, "BLOCK_SIZE_M": 64, "BLOCK_SIZE_N": 160, "CLUSTER_N": 2, "GROUP_SIZE_M": 8}),
    Case("orders_of_clusters", On(LARGE), {**CUTE, "GROUP_SIZE_M": 16}, {**CUTE, "GROUP_SIZE_M": 1}),
    # 4 x 12 clusters: there are groups of 1 and 8 only, of which 8 are the whole shorter side.
    Case("orders_of_clusters", On((511, 1535, 8191)), {**PACKED, "GROUP_SIZE_M": 8}, {**PACKED, "GROUP_SIZE_M": 2}),
    # 4 x 8 clusters are walked by the longer side in groups of 8, for both sides are one group.
    Case("orders_of_clusters", On((512, 1024, 16384)), {**CUTE, "GROUP_SIZE_M": 8}, {**CUTE, "GROUP_SIZE_M": 16}),
    # Of small operands 4 are not tried.
    Case("orders_of_clusters", On((1024, 1024, 1024)), {**CUTE, "GROUP_SIZE_M": 8}, {**CUTE, "GROUP_SIZE_M": 4}),
    Case("orders_of_clusters", On((392, 19216, 888)), {**SWAPPED, "GROUP_SIZE_M": 1},
         {**SWAPPED, "GROUP_SIZE_M": 8}),
    # 5 waves of 152 columns beside 5 of 160 and 6 of 144; 8 of 104 beside 7 of 112.
    Case("eights_where_they_save", On((5000, 5000, 5000)), {**TALL, "BLOCK_SIZE_N": 152},
         {**TALL, "BLOCK_SIZE_N": 104}),
    # 34 rows take 40 columns of a tile, or 48, and no more than these.
    Case("eights_where_they_save", On((34, 5120, 5120)), {**NARROW, "BLOCK_SIZE_N": 40},
         {**NARROW, "BLOCK_SIZE_N": 56}),
    Case("loop_over_tiles_needs_several", On(LARGE), LOOP, CUTE),
    Case("loop_over_tiles_needs_several", On((1000, 1000, 1000)), CUTE, LOOP),
    Case("loop_over_tiles_needs_several", On((1000, 1000, 1000)), CUTE, TURNS),
    Case("loop_over_tiles_needs_several", On(LARGE), TURNS, CUTE),
    # 2048^2 is 256 tiles of 128 x 128, 97 % of two waves, and 176 of 128 x 192, 67 % of two.
    Case("full_waves", On((2048, 2048, 2048)), CUTE, {**CUTE, "BLOCK_SIZE_N": 192}),
    Case("full_waves", On((16384, 16384, 4096)), {**LOOP, "BLOCK_SIZE_N": 256}, LOOP),
    # 4096 x 4096 in 256 x 256 by pairs is 512 blocks, 86 % of four waves of 148, in 256 x 192 704, 95 % of five.
    Case("full_waves", On((4096, 4096, 4096), "sm_100"), {**PAIRS, "BLOCK_SIZE_N": 192}, {**PAIRS, "BLOCK_SIZE_N": 32}),
    Case("clusters_where_operands_are_shared", On(LARGE, "sm_100"), {**PAIRS, "CLUSTER_N": 2},
         {**PAIRS, "CLUSTER_N": 4}),
    Case("slices_for_idle_sms", On((200, 3072, 12288)), {**CUTE, "SPLIT_K": 4}, {**CUTE, "SPLIT_K": 6}),
    Case("slices_of_turns_are_equal", On((200, 3072, 12288)), {**CUTE, "SPLIT_K": 5}, {**TURNS, "SPLIT_K": 5}),
    Case("slices_of_turns_are_equal", On((200, 3072, 12288)), {**TURNS, "SPLIT_K": 4}, {**TURNS, "SPLIT_K": 5}),
    Case("slices_are_long", On((64, 1801, 1024)), {**OF_FEW, "SPLIT_K": 4}, {**OF_FEW, "SPLIT_K": 6}),
    Case("slices_are_long", On((64, 1801, 1024)), {**OF_FEW, "SPLIT_K": 4}, {**OF_FEW, **PACKED, "SPLIT_K": 4}),
    Case("block_of_k_for_tile", On(LARGE), {**CUTE, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 128},
         {**CUTE, "BLOCK_SIZE_N": 80, "BLOCK_SIZE_K": 128}),
    Case("block_of_k_for_tile", On((17, 5120, 5120)), {**SWAPPED, "BLOCK_SIZE_N": 32, "BLOCK_SIZE_K": 256},
         {**SWAPPED, "BLOCK_SIZE_K": 256}),
    Case("clusters_where_operands_are_shared", On((2048, 3584, 4096)), {**CUTE, "BLOCK_SIZE_M": 256, "CLUSTER_M": 4},
         {**CUTE, "CLUSTER_M": 4}),
    Case("clusters_where_operands_are_shared", On(LARGE), {**TURNS, "BLOCK_SIZE_N": 256, "CLUSTER_N": 2},
         {**TURNS, "BLOCK_SIZE_N": 256, "CLUSTER_N": 4}),
    # 2 x 152 tiles of 208 x 128 are three waves of 120 SMs and of 132; 32 x 32 nine and eight.
    Case("clusters_where_operands_are_shared", On((392, 19216, 888)),
         {**TURNS, "BLOCK_SIZE_N": 208, "SWAP_AB": 1, "CLUSTER_M": 4},
         {**TURNS, "BLOCK_SIZE_N": 208, "SWAP_AB": 1, "CLUSTER_M": 4, "PINGPONG": 0}),
    Case("clusters_where_operands_are_shared", On(LARGE), {**TURNS, "CLUSTER_N": 2},
         {**TURNS, "CLUSTER_M": 2, "CLUSTER_N": 2}),
    # 48 x 2 tiles are 12 clusters of 8, of which 13 run at once; 48 x 6 are 36. Eight beside each other were not tried.
    Case("clusters_where_operands_are_shared", FEW, {**EIGHTS, "CLUSTER_M": 4, "CLUSTER_N": 2},
         {**EIGHTS, "BLOCK_SIZE_N": 48, "CLUSTER_M": 4, "CLUSTER_N": 2}),
    Case("clusters_where_operands_are_shared", FEW, {**EIGHTS, "CLUSTER_M": 4},
         {**EIGHTS, "CLUSTER_M": 4, "PROGRAMS_PER_SM": 1}),
    # 48 tiles: 5 slices are 91 % of two waves, 2 are 73 % of one, 4 are 73 % of two.
    Case("slices_fill_sms", On((200, 3072, 12288)), {**CUTE, "SPLIT_K": 5}, {**CUTE, "SPLIT_K": 2}),
    Case("slices_fill_sms", On((200, 3072, 12288)), {**CUTE, "SPLIT_K": 5}, {**CUTE, "SPLIT_K": 4}),
    # 29 tiles: 3 slices are 66 % of a wave, 2 are 44 %.
    Case("slices_fill_sms", On((64, 1801, 4096)), {**OF_FEW, "SPLIT_K": 3}, {**OF_FEW, "SPLIT_K": 2}),
    Case("slices_fill_sms", On((64, 1801, 4096)), {**OF_FEW, "SPLIT_K": 3},
         {**OF_FEW, "family": "gemm_cute_packed", "SPLIT_K": 3}),
    # 24 tiles: 4 slices are 73 % of a wave, 3 are 55 %.
    Case("slices_fill_sms", On((3, 1496, 7651)), {**NARROW, "SPLIT_K": 4}, {**NARROW, "SPLIT_K": 3}),
    # 6 tiles: twice 3 slices would be shorter than 384, twice 2 would not.
    Case("slices_fill_sms", On((3, 376, 1923)), {**NARROW, "SPLIT_K": 3}, {**NARROW, "SPLIT_K": 2}),
    # 12 tiles: 11 slices fill all SMs, 9 are 82 % of a wave.
    Case("slices_fill_sms", On((88, 2226, 28236)), {**OF_TWELVE, "SPLIT_K": 11}, {**OF_TWELVE, "SPLIT_K": 9}),
    # One tile: 1.3 times 66 slices would be shorter than 256 each, 1.3 times 54 not. There are no more than 66.
    Case("slices_fill_sms", On((3, 50, 20001)), {**ONE_TILE, "SPLIT_K": 66}, {**ONE_TILE, "SPLIT_K": 54}),
    Case("slices_fill_sms", On((3, 50, 50001)), {**ONE_TILE, "SPLIT_K": 66}, {**ONE_TILE, "SPLIT_K": 54}),
    # Blackwell's space has 8 and 16 slices and none between: 4 blocks, twice 16 slices would be shorter than 384.
    Case("slices_fill_sms", On((128, 256, 10000), "sm_100"), {**PAIRS, "BLOCK_SIZE_N": 128, "SPLIT_K": 16},
         {**PAIRS, "BLOCK_SIZE_N": 128, "SPLIT_K": 8}),
    # 17 x 5120 in 128 x 32: 40 tiles, which were the best there.
    Case("full_waves", On((17, 5120, 5120)), {**SWAPPED, "BLOCK_SIZE_N": 32},
         {**SWAPPED, "BLOCK_SIZE_M": 192, "BLOCK_SIZE_N": 32}),
)  # fmt: skip

HEURISTIC_PLACES = (
    PlaceCase("something_to_pack", PACKED, On((4096, 4096, 1023)), On(LARGE)),
    PlaceCase("one_order_of_operands", SWAPPED, On((256, 4096, 4096)), On((272, 4096, 4096))),
    PlaceCase("one_order_of_operands", {**SWAPPED, "BLOCK_SIZE_N": 160}, On(LARGE, keys=NT), On(LARGE, keys=TN)),
    PlaceCase(
        "eights_where_they_save",
        {**EIGHTS, "BLOCK_SIZE_M": 128},
        On((300, 3072, 4096), keys=FP8_NT),
        On((300, 3072, 4096)),
    ),
    PlaceCase("slices_are_long", {**CUTE, "SPLIT_K": 4}, On((200, 3072, 12288)), On((200, 3072, 1024))),
    PlaceCase("slices_for_idle_sms", {**CUTE, "SPLIT_K": 4}, On((200, 3072, 12288)), On((400, 3072, 12288))),
    # 48 and 72 tiles of 128 x 128, of which two slices fill 72 % of a wave and 109 %.
    PlaceCase("slices_for_idle_sms", {**CUTE, "SPLIT_K": 2}, On((200, 3072, 12288)), On((384, 3072, 12288))),
    # 4096 tiles of 128 x 128 are 31 waves.
    PlaceCase(
        "full_waves",
        {**OF_BLOCKS, "PROGRAMS_PER_SM": 1},
        On((8192, 8192, 4096), keys={**BLOCK_SCALES, **NT}),
        On((8192, 8192, 4096), keys=FP8_NT),
    ),
)

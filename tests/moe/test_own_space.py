"""The space of this package's own fused MoE kernel: what its rules cut, and that no two launches are the same."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from samples import device

from gemm_tuner.core.plain_config import PlainConfig
from gemm_tuner.core.records import Device
from gemm_tuner.moe import alignment, launch, operands, own_arguments, pairs
from gemm_tuner.moe.problem import MoeProblem
from gemm_tuner.moe.workload import WORKLOAD
from gemm_tuner.pipeline import prepare
from gemm_tuner.space import prune

LAYER = MoeProblem("own", 512, 128, 768, 2048, 8)
FP8 = replace(LAYER, dtype="fp8_w8a8", scaling="block", block_shape=(128, 128))
INT4 = replace(LAYER, dtype="int4_w4a16", scaling="group", block_shape=(0, 64))
FEW = MoeProblem("own", 2, 16, 128, 256, 2)
SIZES = ("N", "K", "rows", "W_ROWS")  # arguments that are no constants
H200, MI300X, A100 = device("sm_90"), device("gfx942"), device("sm_80")


def rejected(problem: MoeProblem, of: Device = H200, **fields: int) -> Any:
    """The configurations of the space with these values, with the rule that cuts each in a column of its own."""
    own = WORKLOAD.own_space([problem], of)
    frame = WORKLOAD.frame({family: dict(axes) for family, axes in own.families.items()})
    pruned = prune.apply(prune.columns_of(frame), problem, of, prepare.rules_of(own))
    frame = frame.assign(rule=pruned.rejected_by)
    for name, value in fields.items():
        frame = frame[frame[name] == value]
    return frame


@pytest.mark.parametrize(
    ("rule", "problem", "of", "fields"),
    [
        ("computes_several_tiles", FEW, H200, {"PROGRAMS_PER_SM": 1}),
        ("tma_can_load", LAYER, A100, {"W_BY_TMA": 1}),
        ("tma_can_load", replace(LAYER, N=772), H200, {"W_BY_TMA": 1}),
        ("rows_fill_an_instruction", LAYER, H200, {"BLOCK_SIZE_M": 8, "SWAP_AB": 0}),
        ("swaps_for_warp_groups", LAYER, H200, {"BLOCK_SIZE_M": 64, "SWAP_AB": 1}),
        ("swaps_for_warp_groups", LAYER, H200, {"BLOCK_SIZE_N": 32, "SWAP_AB": 1}),
        ("swaps_for_warp_groups", LAYER, A100, {"SWAP_AB": 1}),
        ("tiles_fit_the_scales", FP8, H200, {"BLOCK_SIZE_K": 256}),
        ("swaps_for_warp_groups", INT4, H200, {"BLOCK_SIZE_N": 32, "SWAP_AB": 1}),
        ("tma_can_load", replace(INT4, N=784, block_shape=(0, 16)), H200, {"W_BY_TMA": 1}),
        ("tiles_fit_the_scales", replace(INT4, N=768, K=1536, block_shape=(0, 96)), H200, {"BLOCK_SIZE_K": 64}),
        ("orders_alike", FEW, H200, {"GROUP_SIZE_M": 32, "BLOCK_SIZE_M": 128}),
        ("instruction_fits", LAYER, MI300X, {"BLOCK_SIZE_M": 16, "matrix_instr_nonkdim": 32}),
    ],
)
def test_a_rule_cuts_all_of_its_kind(rule: str, problem: MoeProblem, of: Device, fields: dict[str, int]) -> None:
    found = rejected(problem, of, **fields)
    assert len(found) and (found.rule != "").all() and rule in set(found.rule)


@pytest.mark.parametrize(
    ("problem", "of"),
    [(LAYER, H200), (FP8, H200), (INT4, H200), (LAYER, MI300X), (INT4, MI300X), (FEW, H200), (LAYER, A100)],
)
def test_each_axis_is_left_something(problem: MoeProblem, of: Device) -> None:
    found = rejected(problem, of)
    kept = found[found.rule == ""]
    assert 50 < len(kept) < len(found) / 2
    varied = {"BLOCK_SIZE_N", "num_warps"}
    if problem is not FEW:
        varied |= {"BLOCK_SIZE_M", "PROGRAMS_PER_SM"}
    if of is H200:
        varied |= {"SWAP_AB", "W_BY_TMA", "num_stages"}
    if of is MI300X:
        varied |= {"waves_per_eu", "matrix_instr_nonkdim", "kpack"}
    assert not [name for name in varied if kept[name].nunique() < 2]


def test_integers_have_steps_within_a_group_and_of_whole_groups() -> None:
    found = rejected(INT4)
    assert {32, 64, 128} <= set(found[found.rule == ""].BLOCK_SIZE_K)
    large = found[(found.rule == "") & (found.BLOCK_SIZE_M >= 64)]
    assert set(large.SWAP_AB) == {0, 1}  # in registers where it is the left operand


def test_nothing_is_tried_where_the_server_launches_no_triton_kernel() -> None:
    """Of a row whose winner must be the server's, which has none there; ours alone is tried."""
    beside = replace(INT4, server="vllm", beside=True, M=4)
    assert set(rejected(beside).rule) == {"launched_in_triton"}
    assert (rejected(replace(beside, M=1024)).rule == "").any()
    assert (rejected(replace(INT4, M=4)).rule == "").any()


def test_checks_of_integers_have_a_rest_along_k() -> None:
    tile = {"family": "own_moe", "BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 128}
    small = WORKLOAD.check_problems(INT4, tile, descriptors=False, interpreted=True)
    on_gpu = WORKLOAD.check_problems(INT4, tile, descriptors=False, interpreted=False)
    for ragged in (small[-1], on_gpu[-1]):
        assert isinstance(ragged, MoeProblem) and ragged.K % 128 and ragged.K % 64 == 0


@pytest.mark.parametrize(
    "layer",
    [INT4, replace(INT4, block_shape=(0, 16)), replace(INT4, dtype="int8_w8a16", block_shape=(0, 8)),
     replace(FP8, block_shape=(8, 8)), replace(FP8, block_shape=(64, 48), N=768, K=1536), FP8, LAYER],
)  # fmt: skip
def test_what_tma_can_load_is_checked_at_sizes_that_it_can_load(layer: MoeProblem) -> None:
    tile = {"family": "own_moe", "BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 64, "W_BY_TMA": 1}
    for interpreted in (True, False):
        for size in WORKLOAD.check_problems(layer, tile, descriptors=False, interpreted=interpreted):
            assert isinstance(size, MoeProblem)
            assert "tma_can_load" not in set(rejected(size, W_BY_TMA=1).rule)
            assert not [block for block in layer.block_shape if block and (size.N % block or size.K % block)]


def test_no_two_kept_configurations_launch_the_same() -> None:
    for problem in (LAYER, replace(LAYER, M=4), FEW):
        frame = rejected(problem)
        configs = WORKLOAD.configs_of(frame[frame.rule == ""].drop(columns="rule"))
        launches = set()
        for one in (config.to_dict() for config in configs):
            grids = [launch.grid(problem, one, part, H200.num_sms) for part in launch.PARTS]
            tiles = [launch.grid(problem, {**one, "PROGRAMS_PER_SM": 0}, part, 1) for part in launch.PARTS]
            constants = {**one, "PROGRAMS_PER_SM": grids != tiles}
            launches.add((*constants.values(), *grids))
        assert len(launches) == len(configs)


def test_layers_share_a_compilation_only_where_they_share_constants() -> None:
    one = PlainConfig("own_moe", (("BLOCK_SIZE_M", 16), ("BLOCK_SIZE_N", 64), ("BLOCK_SIZE_K", 64), ("GROUP_SIZE_M", 1),
                                  ("num_warps", 4), ("num_stages", 2), ("PROGRAMS_PER_SM", 0), ("SWAP_AB", 0),
                                  ("W_BY_TMA", 0)))  # fmt: skip
    changes: tuple[dict[str, Any], ...] = (
        {}, {"M": 1024}, {"M": 2}, {"global_E": 256}, {"M": 2, "global_E": 256}, {"N": 784}, {"topk": 4},
        {"bias": True}, {"activation": "relu2_no_mul"}, {"out": "fp16", "dtype": "fp16"},
    )  # fmt: skip
    layers = [replace(LAYER, **change) for change in changes]
    layers += [INT4, replace(INT4, zero_points=True), replace(INT4, block_shape=(0, 128)), FP8]
    constants: dict[str, set[Any]] = {}
    for layer in layers:
        made = []
        for part in launch.PARTS:
            tensors = operands.blank(layer, part, 16, launch.Sides(), lambda kind, count: kind)
            values = own_arguments.values(layer, one.to_dict(), part, tensors)
            made.append(tuple((name, value) for name, value in values.items() if name not in SIZES))
        constants.setdefault(WORKLOAD.specialization(layer, one, H200.target), set()).add(tuple(made))
    assert 5 < len(constants) < len(layers) and {len(some) for some in constants.values()} == {1}


def test_a_grid_covers_every_block_that_the_alignment_can_make() -> None:
    """The most blocks come from rows that are spread over the experts, each with one row beyond whole blocks."""
    for problem in (FEW, replace(FEW, M=63), replace(FEW, M=130, E=7), replace(FEW, M=3, topk=1, E=100)):
        for block in (8, 16, 64):
            rows, used = problem.rows, min(problem.rows, problem.E)
            least = (rows - used) // block * block  # whole blocks of one expert
            ids = np.array([0] * least + [row % used for row in range(rows - least)])
            made = alignment.align(ids[:, None], problem.E, block, alignment.room(rows, problem.E, block))
            config = {"family": "own_moe", "BLOCK_SIZE_M": block, "BLOCK_SIZE_N": 64, "PROGRAMS_PER_SM": 0}
            (programs,) = launch.grid(problem, config, launch.UP, 1)
            assert programs >= made.total // block * -(-problem.gates * problem.N // 64)
            assert launch.grid(problem, {**config, "PROGRAMS_PER_SM": 2}, launch.UP, 1) == (min(2, programs),)


def test_its_gemms_may_have_tiles_of_their_own_beside_a_servers() -> None:
    """Pairs are of one family each."""
    fields = {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 1, "num_warps": 4}
    ours = [
        PlainConfig("own_moe", tuple({**fields, "num_stages": 3, "PROGRAMS_PER_SM": 0, "SWAP_AB": swap}.items()))
        for swap in (0, 1)
    ]
    theirs = [PlainConfig("vllm_moe", tuple({**fields, "num_stages": stages}.items())) for stages in (2, 3)]
    screened = [(one, us) for two in (ours, theirs) for one, us in zip(two, ((1.0, 9.0), (9.0, 1.0)), strict=True)]
    beside = replace(LAYER, server="vllm", beside=True)
    found = WORKLOAD.recombined(beside, screened)
    assert {one.family for one in found} == {"own_moe"}
    pair = found[0]
    parts = [launch.part_config(pair.to_dict(), part)["SWAP_AB"] for part in launch.PARTS]
    assert parts == [0, 1] and list(pairs.best("vllm_moe", screened))
    assert WORKLOAD.recombined(replace(beside, beside=False), screened) == []


def test_predictions_of_two_families_are_those_of_each() -> None:
    beside = replace(LAYER, server="vllm", beside=True)
    own = WORKLOAD.own_space([beside], H200)
    frame = WORKLOAD.frame({family: dict(axes) for family, axes in own.families.items()})
    both = pd.Series(WORKLOAD.predict_us(prune.columns_of(frame), beside, H200))
    for family in own.families:
        mine = frame[frame.family == family]
        alone = WORKLOAD.predict_us(prune.columns_of(mine), beside, H200)
        assert (both[mine.index].to_numpy() == alone).all()

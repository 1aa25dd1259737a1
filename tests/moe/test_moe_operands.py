"""Operands of MoE layers: draws of the routing share the weights, so that rotating through them flushes nothing."""

from __future__ import annotations

import io
import itertools
from dataclasses import replace

import numpy as np
import torch

from gemm_tuner.launch.candidates import WorkOperands
from gemm_tuner.launch.journal import Journal
from gemm_tuner.launch.loading import Loading
from gemm_tuner.launch.placement import Placement
from gemm_tuner.launch.plan import FINALS, Method, Plan, Work
from gemm_tuner.launch.processor import Cpu
from gemm_tuner.launch.stopwatch import Stopwatch
from gemm_tuner.moe import launch, operands, routing
from gemm_tuner.moe.launch import PARTS, extent
from gemm_tuner.moe.problem import MoeProblem
from gemm_tuner.moe.servers import SERVERS

LAYER = MoeProblem("vllm", 6, 8, 32, 48, 2, routing=("uniform", "zipf:1.0"), seeds=2)


def test_draws_share_the_weights_and_leave_the_flush_to_the_launcher() -> None:
    sets = WorkOperands(Work(LAYER, ()), Method(), "cpu", Placement(0, 1, "cpu"))
    assert len(sets.sets) == 4 and not sets.outgrow(1)
    assert len({one.gemms["up"].w.data_ptr() for one in sets.sets}) == 1
    assert len({one.ids.tobytes() for one in sets.sets}) == 4


def test_no_operands_are_made_to_warm_up_a_baseline_that_is_none() -> None:
    routing._ids.cache_clear()
    plan = Plan(FINALS, (), (Work(LAYER, (), vendor=True),), Method(), device="cpu")
    Loading(plan, Journal(io.StringIO()), [], Cpu(), Stopwatch()).load(last=True)
    assert routing._ids.cache_info().currsize == 0  # of the draws that operands have


def test_a_process_of_finals_has_weights_and_activations_at_addresses_of_its_own() -> None:
    made = operands.make(LAYER, 0, "cpu")
    sets = [Placement(0, process, "cpu").moved(made) for process in (0, 1, 2)]
    for part in PARTS:
        for name in ("a", "w", "c"):
            first, *others = (getattr(one[0].gemms[part], name) for one in sets)
            assert first is getattr(made[0].gemms[part], name)
            assert all(torch.equal(one.nan_to_num(), first.nan_to_num()) for one in others)
            assert len({one.storage_offset() for one in (first, *others)}) == 3, (part, name)
    assert len({one.gemms["up"].w.data_ptr() for one in sets[1]}) == 1


def test_both_servers_get_the_same_values_and_routing() -> None:
    for layer in (LAYER, replace(LAYER, dtype="fp8_w8a8", scaling="channel"), replace(LAYER, bias=True)):
        one, other = (operands.make(replace(layer, server=server), 3, "cpu")[0] for server in ("vllm", "sglang"))
        assert (one.ids == other.ids).all() and torch.equal(one.router, other.router)
        for part in PARTS:
            mine, theirs = one.gemms[part], other.gemms[part]
            for name in ("a", "w", "a_scale", "w_scale", "bias"):
                left, right = getattr(mine, name), getattr(theirs, name)
                assert (left is None and right is None) or torch.equal(left.float(), right.float())
            of = extent(layer, part)
            assert mine.w.shape == (8, of.columns, of.depth) and mine.c.shape == (12, of.columns)
            assert torch.isnan(mine.c.float()).all()


def test_an_alignment_is_made_once_for_each_block() -> None:
    one = operands.make(replace(LAYER, M=40), 0, "cpu")[0]
    first, again = one.tensors("up", 16), one.tensors("down", 16)
    assert first.row_ids is again.row_ids and first.row_ids.dtype == torch.int32
    assert int(first.total) == int((-(-np.bincount(one.ids.ravel(), minlength=8) // 16) * 16).sum())
    assert len(one.tensors("up", 32).experts) < len(first.experts)


def test_blanks_are_as_large_as_the_tensors() -> None:
    for layer in (LAYER, replace(LAYER, M=1, E=64), replace(LAYER, dtype="int8_w8a16", scaling="channel", bias=True),
                  replace(LAYER, N=64, K=64, dtype="fp8_w8a8", scaling="block", block_shape=(32, 32))):  # fmt: skip
        for part, by_tma in itertools.product(PARTS, (False, True)):
            layer = replace(layer, server="sglang" if by_tma else "vllm")
            made = operands.make(layer, 0, "cpu")[0]
            sides = launch.sides({"USE_TMA": int(by_tma)}, part)
            real = made.tensors(part, 16, sides)
            counts = operands.blank(layer, part, 16, sides, lambda _, count: count)
            for name in ("a", "w", "c", "a_scale", "w_scale", "bias", "router", "row_ids", "experts", "total"):
                tensor, count = getattr(real, name), getattr(counts, name)
                assert count == (None if tensor is None else tensor.numel()), (part, name)


def test_rows_that_are_sorted_for_tma_count_as_memory() -> None:
    """As many bytes as the tensors have once every BLOCK_SIZE_M of the space was launched on every draw."""
    for layer in (LAYER, replace(LAYER, N=64, K=64, dtype="fp8_w8a8", scaling="block", block_shape=(32, 32))):
        layer = replace(layer, server="sglang")
        sets = operands.make(layer, 0, "cpu")
        for one, block_m in itertools.product(sets, SERVERS["sglang"].axes(layer, "cuda")["BLOCK_SIZE_M"]):
            one.of_config({"BLOCK_SIZE_M": block_m, "USE_TMA": 1})
        placed = [tensor for one in sets for pair in one.placed.values() for tensor in pair if tensor is not None]
        counted = operands.bytes_of(layer, "cuda", by_tma=True) - operands.bytes_of(layer, "cuda", by_tma=False)
        assert counted == sum(one.numel() * one.element_size() for one in (*placed, *sets[0].results.values())) > 0
        int8 = replace(layer, dtype="int8_w8a16", scaling="channel", block_shape=(0, 0))
        assert operands.bytes_of(int8, "cuda", by_tma=True) == operands.bytes_of(int8, "hip", by_tma=False)


def test_sglangs_launch_is_as_served() -> None:
    """Its alignment has room for one expert more, in fours, and from sm_90 on its kernels wait for earlier ones."""
    layer = replace(LAYER, server="sglang", M=40)
    made = operands.make(layer, 0, "cpu")[0]
    assert len(made.tensors("up", 16).row_ids) == 80 + 9 * 15 + 1
    narrow = {**SERVERS["sglang"].default(layer, ""), "BLOCK_SIZE_M": 16}
    assert launch.values(layer, narrow, "up", launch.Tensors(), "")["EM"] == 216
    assert launch.grid(layer, {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 32}, "up", 1) == (-(-(80 + 9 * 15) // 16) * 2,)
    config = SERVERS["sglang"].default(layer, "sm_90")
    for arch, tokens, wide, expected in (
        ("sm_90", 40, False, (True, True)),
        ("sm_90", 513, False, (True, False)),
        ("sm_90", 40, True, (False, False)),  # the interpreter has no such instruction
        ("sm_80", 40, False, (False, False)),
        ("gfx942", 40, False, (False, False)),
    ):
        values = launch.values(layer.at(tokens), config, "up", launch.Tensors(wide=wide), arch)
        assert (values["USE_GDC"], values["GDC_EARLY"]) == expected
    assert launch.specialization(layer.at(512), 16) != launch.specialization(layer.at(528), 16)


def test_sglang_masks_4_bit_integers_unless_tiles_divide_a_row_of_bytes() -> None:
    """Its launcher compares BLOCK_SIZE_K with the packed row: a kernel with masks, where N is three tiles."""
    layer = replace(LAYER, server="sglang", N=192, K=512, scaling="group", block_shape=(0, 32))
    for dtype, expected in (("int4_w4a16", [True, False]), ("int8_w8a16", [True, True])):
        config = {**SERVERS["sglang"].default(layer, "sm_90"), "BLOCK_SIZE_K": 64}
        made = [launch.values(replace(layer, dtype=dtype), config, part, launch.Tensors(), "sm_90") for part in PARTS]
        assert [one["even_Ks"] for one in made] == expected

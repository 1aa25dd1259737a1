"""The space of MoE configurations, and what its rules keep."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from samples import device

from gemm_tuner.core.plain_config import PlainConfig
from gemm_tuner.core.records import Device
from gemm_tuner.moe import alignment, launch, model, routing
from gemm_tuner.moe.problem import MoeProblem
from gemm_tuner.moe.servers import SERVERS
from gemm_tuner.moe.workload import WORKLOAD
from gemm_tuner.pipeline import prepare
from gemm_tuner.space import prune

DEEPSEEK = MoeProblem("vllm", 64, 256, 256, 7168, 8, "fp8_w8a8", scaling="block", block_shape=(128, 128))
QWEN = MoeProblem("vllm", 64, 128, 768, 2048, 8)
H200, MI300X = device("sm_90"), device("gfx942")


def space_of(problem: MoeProblem, of: Device) -> tuple[Any, tuple[Any, ...]]:
    own = WORKLOAD.own_space([problem], of)
    frame = WORKLOAD.frame({family: dict(axes) for family, axes in own.families.items()})
    return frame, prepare.rules_of(own)


def kept(problem: MoeProblem, of: Device = H200, but: tuple[str, ...] = ()) -> Any:
    """The configurations that the rules keep, but for some of these."""
    frame, rules = space_of(problem, of)
    rules = tuple(rule for rule in rules if rule.name not in but)
    return frame.iloc[prune.apply(prune.columns_of(frame), problem, of, rules).kept]


def test_the_spaces_are_those_of_the_servers_tuners() -> None:
    fp8 = replace(DEEPSEEK, fp8="fp8_e4m3_fnuz")
    assert len(space_of(QWEN, H200)[0]) == 1920
    assert len(space_of(replace(QWEN, server="sglang"), H200)[0]) == 2 * 2560  # with TMA, and without
    assert (len(space_of(QWEN, MI300X)[0]), len(space_of(fp8, MI300X)[0])) == (40_000, 8_000)
    both = WORKLOAD.own_space([QWEN, replace(QWEN, server="sglang")], H200)
    assert sorted(both.families) == ["sglang_moe", "vllm_moe"]


def test_the_reason_of_a_rule_is_one_line() -> None:
    own = WORKLOAD.own_space([QWEN], H200)
    assert all(why and why == " ".join(why.split()) for _, why, _ in (*own.rules, *own.heuristics))


def test_of_vllms_640_configurations_of_block_fp8_half_are_other_launches() -> None:
    frame, rules = space_of(DEEPSEEK, H200)
    tuner = frame[(frame.BLOCK_SIZE_M >= 16) & (frame.BLOCK_SIZE_N % 128 == 0) & (frame.BLOCK_SIZE_K % 128 == 0)]
    (same,) = [rule for rule in rules if rule.name == "launches_another_kernel"]
    assert (len(tuner), len(prune.apply(prune.columns_of(tuner), DEEPSEEK, H200, (same,)).kept)) == (640, 320)


def test_no_two_kept_configurations_launch_the_same() -> None:
    for problem in (DEEPSEEK, QWEN, replace(DEEPSEEK, M=4), replace(QWEN, server="sglang", M=1024)):
        configs = [one.to_dict() for one in WORKLOAD.configs_of(kept(problem))]
        server, launches = SERVERS[problem.server], set()
        for one in configs:
            blocks = -(-server.ids_read(problem, one["BLOCK_SIZE_M"]) // one["BLOCK_SIZE_M"])
            launched = int(server.launched_k(problem, one["BLOCK_SIZE_K"]))
            launches.add(
                (*{**one, "BLOCK_SIZE_K": launched, "GROUP_SIZE_M": min(one["GROUP_SIZE_M"], blocks)}.values(),)
            )
        assert len(launches) == len(configs) > 20


def test_sglangs_tiles_divide_a_block_of_scales() -> None:
    # Its kernel reads one scale of w for a tile of a block or less, at the tile's first row.
    found = kept(replace(DEEPSEEK, server="sglang", M=4096))
    assert set(found.BLOCK_SIZE_K) == {32, 64, 128}
    assert set(found.BLOCK_SIZE_N) == {32, 64, 128, 256}


def test_tma_is_for_types_that_sglang_ships_it_for_and_gpus_that_have_it() -> None:
    layer, few = replace(DEEPSEEK, server="sglang", M=4096), device("sm_80")
    bf16 = replace(QWEN, server="sglang", M=512)
    for problem in (layer, bf16):
        assert set(kept(problem).USE_TMA) == {0, 1}
    assert set(kept(bf16, few).USE_TMA) == {0} == set(kept(replace(bf16, N=772)).USE_TMA)
    channel = {"scaling": "channel", "block_shape": (0, 0)}
    others = (replace(layer, **channel), replace(bf16, dtype="int8_w8a16", scaling="channel"))  # type: ignore[arg-type]
    for problem in (*others, replace(bf16, server="vllm")):
        assert "USE_TMA" not in kept(problem)
    assert "USE_TMA" not in kept(bf16, MI300X)
    for problem in (layer, *others):
        default = WORKLOAD.default_config(problem, H200).options()
        assert default.get("USE_TMA") == (0 if problem is layer else None)


def test_sglangs_gemms_may_differ_in_tma_alone() -> None:
    tile = {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 1, "num_warps": 4}
    with_tma, without = (PlainConfig("sglang_moe", (*tile.items(), ("USE_TMA", one))) for one in (1, 0))
    (pair, *_) = WORKLOAD.recombined(
        replace(DEEPSEEK, server="sglang"), [(with_tma, (9.0, 1.0)), (without, (1.0, 9.0))]
    )
    assert [launch.part_config(pair.to_dict(), part)["USE_TMA"] for part in launch.PARTS] == [0, 1]


def test_blocks_are_no_larger_than_the_busiest_expert() -> None:
    busiest = max(int(routing.counts(ids, QWEN.E).max()) for ids in model.draws(QWEN))
    assert 4 < busiest <= 16
    assert set(kept(QWEN).BLOCK_SIZE_M) == {16}
    assert set(kept(replace(QWEN, M=4096)).BLOCK_SIZE_M) >= {128, 256}
    skewed = replace(QWEN, routing=("zipf:1.2",))
    assert set(kept(skewed).BLOCK_SIZE_M) > {16}


def test_without_sorting_every_block_is_one_row() -> None:
    few = replace(QWEN, M=4)
    assert not SERVERS["vllm"].sorts(few) and SERVERS["vllm"].sorts(replace(few, M=5))
    assert SERVERS["sglang"].sorts(replace(few, server="sglang"))
    assert SERVERS["vllm"].ids_read(few, 16) == 32 * 16
    assert set(kept(few).BLOCK_SIZE_M) == {16}


def test_a_prediction_grows_with_the_rows_and_finds_padding_dear() -> None:
    frame, _ = space_of(replace(QWEN, M=512), H200)
    columns = prune.columns_of(frame)
    few, many = (model.predict_us(columns, replace(QWEN, M=m), H200) for m in (512, 4096))
    assert (many >= few).all() and (many > few).any()
    small, large = frame.BLOCK_SIZE_M == 16, frame.BLOCK_SIZE_M == 256
    tokens = model.predict_us(columns, replace(QWEN, M=64), H200)
    assert np.median(tokens[small]) < np.median(tokens[large])


@pytest.mark.parametrize("kind", ["uniform", "balanced", "zipf:1.0", "dirichlet:0.3"])
def test_tokens_go_to_different_experts_and_draws_repeat(kind: str) -> None:
    ids = routing.ids(kind, 50, 8, 64, 3)
    assert ids.shape == (50, 8) and ids.min() >= 0 and ids.max() < 64
    assert all(len(set(row)) == 8 for row in ids.tolist())
    assert (ids == routing.ids(kind, 50, 8, 64, 3)).all()
    assert (ids != routing.ids(kind, 50, 8, 64, 4)).any()


def test_distributions_are_as_skewed_as_they_say() -> None:
    busiest = {
        kind: float(np.mean([routing.counts(routing.ids(kind, 512, 8, 64, seed), 64).max() for seed in range(3)]))
        for kind in ("balanced", "uniform", "zipf:1.0", "dirichlet:0.3")
    }
    assert busiest["balanced"] == 64
    assert busiest["balanced"] < busiest["uniform"] < min(busiest["zipf:1.0"], busiest["dirichlet:0.3"])


def test_alignment_gives_every_row_a_place_in_a_block_of_its_expert() -> None:
    for kind, tokens in (("uniform", 37), ("zipf:2.0", 200), ("balanced", 1)):
        ids = routing.ids(kind, tokens, 3, 16, 0)
        for block in (16, 64):
            found = alignment.align(ids, 16, block, alignment.room(ids.size, 16, block))
            assert found.row_ids is not None and len(found.row_ids) == alignment.room(ids.size, 16, block)
            assert found.total == routing.padded_rows(ids, 16, block) <= len(found.row_ids)
            real = found.row_ids < ids.size
            assert sorted(found.row_ids[real].tolist()) == list(range(ids.size))
            experts = np.repeat(found.experts, block)[: len(found.row_ids)]
            assert (ids.ravel()[found.row_ids[real]] == experts[real]).all()
            assert (found.experts[found.total // block :] == -1).all()


def test_rows_of_other_ranks_are_sorted_as_a_server_sorts_them() -> None:
    """vLLM by all ranks' experts, of which others become -1; SGLang's are one bucket more, in front."""
    ids = np.array([[7, 1], [0, 7], [9, 1], [4, 7]], dtype=np.int32)  # 2 of 10 experts are of this rank
    for server, owners in (("vllm", [0, 1, -1, -1, -1]), ("sglang", [-1, -1, 0, 1])):
        layer = MoeProblem(server, 4, 2, 64, 64, 2, global_E=10)
        launcher = SERVERS[server]
        assert launcher.sorts(layer) and not launcher.ids_read(layer, 4) % 4
        found = alignment.align(ids, 2, 4, launcher.room(layer, 4), launcher.buckets(layer))
        assert found.experts[: found.total // 4].tolist() == owners and (found.experts[found.total // 4 :] == -1).all()
        assert found.row_ids is not None and len(found.row_ids) >= found.total
        real = found.row_ids < 8
        assert sorted(found.row_ids[real].tolist()) == list(range(8))
        experts = np.repeat(found.experts, 4)[: len(found.row_ids)]
        flat = ids.ravel()[found.row_ids[real]]
        assert (experts[real] == np.where(flat < 2, flat, -1)).all()


def test_a_rank_has_its_share_of_the_rows() -> None:
    whole = replace(QWEN, M=512)
    rank = replace(whole, E=16, global_E=128)
    mine = [int(routing.counts(ids, rank.E).sum()) for ids in model.draws(rank)]
    assert all(400 < rows < 600 for rows in mine) and whole.rows == 4096
    assert rank.flops == whole.flops / 8 and rank.key != replace(rank, global_E=0).key
    assert max(kept(rank).BLOCK_SIZE_M) == max(kept(whole).BLOCK_SIZE_M)  # as busy experts


def test_defaults_are_what_the_servers_launch_without_a_file() -> None:
    """Read off vLLM 0.33.0 and SGLang 0.5.23: BLOCK_SIZE_M, N, K, GROUP_SIZE_M, num_warps, num_stages."""
    sglang = {"server": "sglang"}
    for problem, arch, expected in (
        (QWEN, H200, (32, 64, 128, 1, 4, 3)),
        (replace(QWEN, M=1), H200, (16, 64, 128, 1, 4, 4)),
        (replace(QWEN, M=4096), H200, (128, 128, 64, 1, 8, 3)),
        (replace(QWEN, M=4096, E=8), MI300X, (128, 128, 64, 16, 8, 2)),
        (replace(DEEPSEEK, M=8), H200, (16, 64, 128, 1, 4, 3)),
        (replace(DEEPSEEK, M=4096), H200, (64, 128, 128, 32, 4, 3)),
        (replace(DEEPSEEK, scaling="tensor", block_shape=(0, 0), M=1024), H200, (128, 128, 128, 1, 8, 3)),
        (replace(QWEN, **sglang), H200, (16, 32, 64, 1, 4, 3)),
        (replace(QWEN, M=129, **sglang), H200, (64, 64, 32, 8, 4, 3)),
        (replace(DEEPSEEK, **sglang), H200, (64, 128, 128, 32, 4, 3)),
    ):
        assert tuple(WORKLOAD.default_config(problem, arch).options().values())[:6] == expected
    amd = WORKLOAD.default_config(QWEN, MI300X).options()
    assert list(amd)[6:] == ["waves_per_eu", "matrix_instr_nonkdim", "kpack"]


def test_few_rows_of_4_bits_are_not_the_triton_kernels() -> None:
    """vLLM launches a kernel in CUDA up to 6 rows an expert; integers in groups are read without a mask along K."""
    layer = replace(QWEN, N=768, K=2048, dtype="int4_w4a16", scaling="group", block_shape=(0, 64))
    server = SERVERS["vllm"]
    for problem, backend, launches in (
        (replace(layer, M=96), "cuda", False),
        (replace(layer, M=97), "cuda", True),
        (replace(layer, M=96), "hip", True),
        (replace(layer, M=96, block_shape=(0, 256)), "cuda", True),
        (replace(layer, M=96, dtype="int8_w8a16"), "cuda", True),
    ):
        assert server.launches_it(problem, backend) is launches
        assert server.sorts(problem)
    config = PlainConfig("vllm_moe", tuple(server.default(replace(layer, M=1), "sm_90").items())).to_dict()
    assert [launch.part_config(config, part)["BLOCK_SIZE_K"] for part in launch.PARTS] == [64, 32]
    assert (config["BLOCK_SIZE_N"], config["down_BLOCK_SIZE_N"], config["down_BLOCK_SIZE_K"]) == (32, 64, 32)
    frame = pd.DataFrame({"BLOCK_SIZE_K": [32, 64, 128, 256]})
    assert list(server.can_launch(replace(layer, N=192), frame)) == [True, True, False, False]
    for problem in WORKLOAD.check_problems(layer, config, descriptors=False, interpreted=False):
        assert isinstance(problem, type(layer)) and problem.N % 64 == problem.K % 64 == 0


@pytest.mark.parametrize(
    "layer",
    [
        replace(QWEN, E=2, global_E=256),
        replace(QWEN, E=8, global_E=9),
        replace(QWEN, E=100, global_E=200, topk=40),
        replace(QWEN, M=7, routing=("ids.npy", "zipf:1.0")),
        replace(QWEN, M=7, E=8, global_E=128, routing=("ids.npy",)),
    ],
    ids=["fewer experts than a token has", "one expert elsewhere", "many a token", "recorded", "recorded of all ranks"],
)
def test_what_is_checked_is_a_layer_whose_tokens_can_be_routed(
    layer: MoeProblem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also with fewer experts than the layer has: a check reads the problem again, and makes its operands."""
    monkeypatch.chdir(tmp_path)
    np.save("ids.npy", np.arange(128, dtype=np.int32).reshape(16, 8))
    config = WORKLOAD.default_config(layer, H200).to_dict()
    for interpreted in (True, False):
        sizes = WORKLOAD.check_problems(layer, config, descriptors=False, interpreted=interpreted)
        for size in sizes:
            assert isinstance(size, MoeProblem)
            again = MoeProblem.from_dict({key: value for key, value in size.to_dict().items() if key != "kind"})
            assert (again.global_E > again.E) is (layer.global_E > 0)
            assert all(ids.shape == (size.M, size.topk) for ids in model.draws(again))
        assert interpreted or sizes[0].routing == layer.routing

"""Fused MoE GEMMs in the interpreter: our host code around a server's kernel, against float64.

``make test`` takes each kind of layer with one server's kernel, in turns; ``make test-all`` with each.
"""

from __future__ import annotations

import ast
import itertools
import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import moe_kernel_source
import pytest
from moe_runner import checked, operator_error
from samples import device

from gemm_tuner.core.plain_config import PlainConfig
from gemm_tuner.moe import kernel_source, launch, pairs
from gemm_tuner.moe.problem import MoeProblem
from gemm_tuner.moe.servers import SERVERS, entry
from gemm_tuner.moe.workload import WORKLOAD
from gemm_tuner.source import codegen

ROOT = Path(__file__).resolve().parents[2]
SOURCES = {"vllm": moe_kernel_source.VLLM + moe_kernel_source.GROUPED, "sglang": moe_kernel_source.sglang()}
BF16 = MoeProblem("vllm", 5, 4, 48, 80, 2, seeds=1)
FP8 = replace(BF16, N=64, K=96, dtype="fp8_w8a8", scaling="block", block_shape=(32, 32))
TILES = ((16, 32, 32, 1, 4, 2), (32, 64, 64, 16, 4, 2))


def written(folder: Path, source: str, problem: MoeProblem, configs: Iterable[PlainConfig]) -> tuple[str, MoeProblem]:
    """(the path of a script with these configurations, the problem with its kernel)."""
    file = folder / "kernel.py"
    file.write_text(source)
    _, kernel = kernel_source.read(str(file), grouped=problem.grouped)
    problem = replace(problem, kernel=kernel, kernel_sha=kernel.sha)
    family, target = SERVERS[problem.server].family, device("sm_90").target
    script = codegen.write_script(ROOT / "templates", folder, family, problem, configs, target)
    return str(folder / script.file), problem


def configs_of(problem: MoeProblem, *tiles: tuple[int, ...]) -> list[PlainConfig]:
    return [PlainConfig(SERVERS[problem.server].family, tuple(entry(*tile).items())) for tile in tiles]


CASES = {
    "bf16, no tile divides": BF16,
    "without sorting": replace(BF16, M=1, E=16),
    "fp16 with bias": replace(BF16, dtype="fp16", out="fp16", bias=True),
    "no gate": replace(BF16, activation="relu2_no_mul"),
    "one expert has all rows": replace(BF16, M=37, E=1, topk=1),
    "most experts have none": replace(BF16, M=3, E=64, topk=3, routing=("zipf:4.0",)),
    "fp8, a scale a block": FP8,
    "fp8, a scale a row": replace(FP8, scaling="channel", block_shape=(0, 0)),
    "fp8, a scale a tensor": replace(FP8, scaling="tensor", block_shape=(0, 0)),
    "int8 weights": replace(BF16, dtype="int8_w8a16", scaling="channel"),
}
OTHERS = replace(BF16, M=9, global_E=10)
CASES |= {
    "other ranks": OTHERS,
    "other ranks, no row of this one": replace(BF16, M=1, topk=1, E=1, global_E=40),
    "fp8, other ranks": replace(FP8, M=9, global_E=10, scaling="channel", block_shape=(0, 0)),
}
INT4 = replace(BF16, N=64, K=128, dtype="int4_w4a16", scaling="group", block_shape=(0, 32))
CASES |= {
    "4 bits in groups": INT4,
    "4 bits, zero points": replace(INT4, zero_points=True, dtype="int4_w4a16"),
    "8 bits in groups, fp16": replace(INT4, dtype="int8_w8a16", out="fp16"),
    "8 bits, zero points": replace(INT4, dtype="int8_w8a16", zero_points=True, M=1, E=16),
}
# So few that they would not be sorted if all were of this rank.
FEW_OF_MANY = replace(BF16, M=2, E=20, global_E=40)
CASES |= {"other ranks, few rows, bias": replace(FEW_OF_MANY, bias=True), "other ranks, few rows": FEW_OF_MANY}
CASES |= {
    "8 bits in groups, other ranks": replace(INT4, dtype="int8_w8a16", M=9, global_E=10),
    "4 bits, zero points, other ranks": replace(INT4, zero_points=True, M=9, global_E=10),
}


@pytest.mark.parametrize(
    ("case", "server"),
    [
        pytest.param(case, server, marks=() if row % len(SOURCES) == column else pytest.mark.grid)
        for (row, case), (column, server) in itertools.product(enumerate(CASES), enumerate(SOURCES))
    ],
)
def test_both_gemms_are_right(case: str, server: str, tmp_path: Path) -> None:
    problem = replace(CASES[case], server=server)
    configs = configs_of(problem, TILES[len(case) % 2])
    script, problem = written(tmp_path, SOURCES[server], problem, configs)
    found = checked(script, problem, configs[0])
    assert found.ok, found.message
    assert (0 < found.error_over_bound <= 1) is ("no row" not in case)


def test_a_pair_launches_a_tile_for_each_gemm(tmp_path: Path) -> None:
    problem = replace(FP8, server="sglang")
    one, other = configs_of(problem, TILES[0], (16, 64, 32, 16, 4, 3))
    (pair, *_) = pairs.best("sglang_moe", [(one, (1.0, 9.0)), (other, (9.0, 1.0))])
    script, problem = written(tmp_path, SOURCES["sglang"], problem, (one, pair))
    assert checked(script, problem, pair).ok and checked(script, problem, one).ok
    config = script_config(script, pair.name)
    symbols = [launch.symbol(problem, config, part) for part in launch.PARTS]
    assert symbols == ["sglang_moe_up_16x32x32_g1_w4_s2", "sglang_moe_down_16x64x32_g16_w4_s3"]
    alone = launch.symbol(problem, script_config(script, one.name), launch.UP)
    assert alone == symbols[0]  # one binary


def by_tma(up: int, down: int) -> PlainConfig:
    """Tiles of 16 rows for both GEMMs, each with TMA or without."""
    fields = {**entry(*TILES[0]), "USE_TMA": up}
    return PlainConfig("sglang_moe", tuple((fields if up == down else {**fields, "down_USE_TMA": down}).items()))


TMA_WAYS = tuple(itertools.starmap(by_tma, itertools.product((0, 1), (0, 1))))
TMA_CASES = {
    "bf16, no tile divides": BF16,
    "most experts have none": CASES["most experts have none"],
    "fp16 with bias": CASES["fp16 with bias"],
    "fp8, a scale a block": FP8,
    "few rows": replace(FP8, M=1, E=16),
    "fp8, other ranks": replace(FP8, M=9, global_E=10),
}


@pytest.mark.parametrize("case", TMA_CASES)
def test_sglangs_kernel_is_right_with_tma(case: str, tmp_path: Path) -> None:
    """Its second GEMM by TMA reads rows as they are placed, and so the first one writes them."""
    problem = replace(TMA_CASES[case], server="sglang")
    script, problem = written(tmp_path, SOURCES["sglang"], problem, TMA_WAYS)
    for one in TMA_WAYS:
        found = checked(script, problem, one)
        assert found.ok, (one.name, found.message)
        assert 0 < found.error_over_bound <= 1
    config = script_config(script, TMA_WAYS[1].name)
    symbols = [launch.symbol(problem, config, part) for part in launch.PARTS]
    assert symbols == ["sglang_moe_up_16x32x32_g1_w4_s2_sorted", "sglang_moe_down_16x32x32_g1_w4_s2_tma"]


@pytest.mark.parametrize(
    ("old", "new", "way"),
    [
        ("c_rows = (block_m * BLOCK_SIZE_M + places).to(tl.int64)", "c_rows = rows", 1),
        ("a_rows = block_m * BLOCK_SIZE_M + places", "a_rows = rows // top_k", 1),
        ("a_desc.load([block_m * BLOCK_SIZE_M,", "a_desc.load([0,", 3),
        ("b_desc.load([expert.to(tl.int32),", "b_desc.load([0,", 2),
    ],
)
def test_a_wrong_kernel_with_tma_is_found(old: str, new: str, way: int, tmp_path: Path) -> None:
    problem = replace(FP8, server="sglang")
    assert old in SOURCES["sglang"]
    script, problem = written(tmp_path, SOURCES["sglang"].replace(old, new), problem, TMA_WAYS)
    assert "GEMM is wrong in row" in checked(script, problem, TMA_WAYS[way]).message


@pytest.mark.parametrize("case", ["bf16, no tile divides", "fp8, a scale a block", "fp8, other ranks"])
def test_a_whole_call_with_tma_is_the_operator(case: str, tmp_path: Path) -> None:
    problem = replace(TMA_CASES[case], server="sglang", M=9)
    script, problem = written(tmp_path, SOURCES["sglang"], problem, TMA_WAYS)
    most = 0.1 if problem.dtype == "fp8_w8a8" else 0.01
    for one in TMA_WAYS:
        assert operator_error(script, problem, one) < most


def script_config(script: str, name: str) -> dict[str, Any]:
    """A configuration as launchers find it in the text of a script."""
    text = Path(script).read_text()
    fields = ast.literal_eval(text.split("FIELDS = ")[1].splitlines()[0])
    rows = (json.loads(line.rstrip(",")) for line in text.splitlines() if line.startswith('["'))
    return next(dict(zip(fields, row, strict=True)) for row in rows if row[0] == name)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("rows // top_k)[:, None] * stride_am", "rows)[:, None] % 2 * stride_am"),
        ("if MUL_ROUTED_WEIGHT:", "if False:"),
        ("expert * stride_be", "expert * 0"),
        ("real = rows < num_valid_tokens", "real = rows < num_valid_tokens - 1"),
        ("tl.cdiv(K, BLOCK_SIZE_K)", "K // BLOCK_SIZE_K"),
        ("wrapped // group_n * stride_bsn", "wrapped * 0"),
        (">> (at % 2 * 4)", ">> (4 - at % 2 * 4)"),
        ("zero = 8.0", "zero = 7.0"),
        ("group = depth[:, None], (depth // group_size)", "group = depth[:, None], (depth // group_size * 0)"),
        ("write_zeros(c_ptr, out, inside, BLOCK_SIZE_M, BLOCK_SIZE_N, compute_type)\n        return", "return"),
    ],
)
def test_a_wrong_kernel_is_found(old: str, new: str, tmp_path: Path) -> None:
    """A row of another token, a weight or an expert left out, a row not written, a rest of K, a scale; of 4 bits the
    other half of a byte, another zero, the first group's scales; of other ranks' rows no zeros."""
    source = SOURCES["vllm"]
    problem = FP8 if "group_n" in old else OTHERS if "zeros" in old else BF16 if old in moe_kernel_source.VLLM else INT4
    assert old in source
    configs = configs_of(problem, TILES[0])
    script, problem = written(tmp_path, source.replace(old, new), problem, configs)
    found = checked(script, problem, configs[0])
    assert not found.ok and ("down" in found.message or old != "if MUL_ROUTED_WEIGHT:")
    assert found.message.startswith("the ") and "GEMM is wrong in row" in found.message


def test_checks_have_ragged_extents_and_experts_without_rows() -> None:
    layer = MoeProblem("vllm", 4096, 256, 256, 7168, 8, "fp8_w8a8", scaling="block", block_shape=(128, 128))
    for one in (layer, replace(layer, dtype="bf16", scaling="none", block_shape=(0, 0))):
        config = WORKLOAD.default_config(one, device("sm_90")).to_dict()
        small = WORKLOAD.check_problems(one, config, descriptors=False, interpreted=True)
        assert len(small) == 2 and all(isinstance(p, MoeProblem) and p.E * p.N * p.K <= 2**19 for p in small)
        assert {p.kernel_sha for p in small if isinstance(p, MoeProblem)} == {one.kernel_sha}
        on_gpu = WORKLOAD.check_problems(one, config, descriptors=False, interpreted=False)
        assert on_gpu[0] == one and len(on_gpu) == 2
        ragged = on_gpu[1]
        assert isinstance(ragged, MoeProblem) and ragged.rows % 16 and ragged.N < layer.N


OPERATORS = {
    "bf16": BF16,
    "without sorting": CASES["without sorting"],
    "blocks without rows": replace(BF16, M=9, E=13, topk=3, activation="gelu"),
    "pairs of gate and value, bias": replace(BF16, activation="swigluoai", bias=True),
    "no gate": CASES["no gate"],
    "fp8, a scale a block": FP8,
    "fp8, a scale a row": CASES["fp8, a scale a row"],
    "fp8, a scale a tensor": CASES["fp8, a scale a tensor"],
    "int8 weights": CASES["int8 weights"],
    "4 bits in groups": INT4,
    "other ranks": OTHERS,
    "other ranks, pairs of gate and value, bias": replace(OTHERS, activation="swigluoai", bias=True),
}


@pytest.mark.parametrize("case", OPERATORS)
def test_a_whole_call_is_the_operator(case: str, tmp_path: Path) -> None:
    """With activations that are quantised on the way: an error of 8-bit floats is some percent of the largest value."""
    server = "sglang" if case in ("no gate", "other ranks") else "vllm"
    problem = replace(OPERATORS[case], server=server)
    (config,) = configs_of(problem, TILES[0])
    script, problem = written(tmp_path, SOURCES[server], problem, [config])
    most = 0.1 if problem.dtype == "fp8_w8a8" else 0.01
    assert operator_error(script, problem, config) < most

"""This package's own fused MoE kernel in the interpreter, against float64."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from moe_runner import checked, checked_narrow, operator_error
from samples import ROOT, device

from gemm_tuner.core.plain_config import PlainConfig
from gemm_tuner.kernels.taken import TakenKernel
from gemm_tuner.moe.launch import PARTS, extent
from gemm_tuner.moe.problem import MoeProblem
from gemm_tuner.source import codegen

TEMPLATES = ROOT / "templates"
BF16 = MoeProblem("own", 5, 4, 48, 80, 2, seeds=1)
FP8 = replace(BF16, N=64, K=96, dtype="fp8_w8a8", scaling="block", block_shape=(32, 32))
CASES = {
    "bf16, no tile divides": BF16,
    "without sorting": replace(BF16, M=1, E=16),
    "fp16 with bias": replace(BF16, dtype="fp16", out="fp16", bias=True),
    "no gate, K of whole steps": replace(BF16, activation="relu2_no_mul", N=64, K=128),
    "rows that fill no block, topk 1": replace(BF16, M=37, E=2, topk=1),
    "an expert with one row, one with none": replace(BF16, M=9, E=4, topk=1, routing=("zipf:2.0",)),
    "most experts have none": replace(BF16, M=7, E=26, topk=1, routing=("zipf:4.0",)),
    "fp8, a scale a block": FP8,
    "fp8, several steps along K have one scale": replace(FP8, N=128, K=192, block_shape=(16, 64)),
    "fp8, several tiles have the scales of a row of blocks": replace(FP8, N=128, K=192, block_shape=(64, 64)),
    "fp8, a scale a row": replace(FP8, scaling="channel", block_shape=(0, 0)),
    "fp8, a scale a tensor": replace(FP8, scaling="tensor", block_shape=(0, 0)),
}
OTHERS = replace(BF16, M=9, global_E=10)
CASES |= {
    "other ranks": OTHERS,
    "other ranks, bias, fp16": replace(OTHERS, dtype="fp16", out="fp16", bias=True),
    "fp8, other ranks": replace(FP8, M=9, global_E=10),
    "other ranks, few rows": replace(BF16, M=2, E=20, global_E=40),
}
INT4 = replace(BF16, N=64, K=160, dtype="int4_w4a16", scaling="group", block_shape=(0, 32))
CASES |= {
    "8 bits, a scale a row": replace(BF16, dtype="int8_w8a16", scaling="channel"),
    "4 bits in groups": INT4,
    "4 bits, several groups in a step, K of no whole steps": replace(INT4, N=48, K=80, block_shape=(0, 16)),
    "4 bits, several steps in a group, zero points": replace(INT4, N=64, K=192, block_shape=(0, 64), zero_points=True),
    "8 bits in groups, fp16": replace(INT4, dtype="int8_w8a16", out="fp16"),
    "8 bits, several groups in a step, zero points": replace(
        INT4, dtype="int8_w8a16", zero_points=True, M=1, E=16, N=48, K=80, block_shape=(0, 16)
    ),
}
# PROGRAMS_PER_SM, SWAP_AB and W_BY_TMA, of one SM: two programs compute all tiles.
WAYS = ((0, 0, 0), (2, 0, 0), (1, 1, 0), (2, 0, 1), (0, 1, 1))


def config(programs_per_sm: int, swap_ab: int, by_tma: int) -> PlainConfig:
    fields = {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 32, "BLOCK_SIZE_K": 32, "GROUP_SIZE_M": 2, "num_warps": 4,
              "num_stages": 2, "PROGRAMS_PER_SM": programs_per_sm, "SWAP_AB": swap_ab, "W_BY_TMA": by_tma}  # fmt: skip
    return PlainConfig("own_moe", tuple(fields.items()))


def script_of(folder: Path, problem: MoeProblem, *configs: PlainConfig, templates: Path = TEMPLATES) -> str:
    script = codegen.write_script(templates, folder, "own_moe", problem, configs, device("sm_90").target)
    return str(folder / script.file)


@pytest.mark.parametrize("case", CASES)
def test_both_gemms_are_right(case: str, tmp_path: Path) -> None:
    aligned = all(extent(CASES[case], part).depth * CASES[case].weight_bytes % 16 == 0 for part in PARTS)
    ways = [config(*way) for way in WAYS if aligned or not way[2]]
    script = script_of(tmp_path, CASES[case], *ways)
    for one in ways:
        found = checked(script, CASES[case], one)
        assert found.ok, found.message
        assert 0 < found.error_over_bound <= 1


def beside(problem: MoeProblem, server: str) -> MoeProblem:
    """A server's, beside whose kernel ours stands."""
    kernel = TakenKernel("kernel.py", "fused_moe_kernel", "", "def fused_moe_kernel(NAME): pass", (), (), "0" * 12)
    return replace(problem, server=server, kernel=kernel, kernel_sha=kernel.sha, beside=True)


@pytest.mark.parametrize("server", ["vllm", "sglang"])
@pytest.mark.parametrize("case", ["bf16, no tile divides", "without sorting", "other ranks", "other ranks, few rows"])
def test_it_is_right_with_the_rows_as_a_server_aligns_them(case: str, server: str, tmp_path: Path) -> None:
    problem, one = beside(CASES[case], server), config(2, 0, 0)
    found = checked(script_of(tmp_path, problem, one), problem, one)
    assert found.ok, found.message


@pytest.mark.parametrize(
    ("case", "old", "new"),
    [
        ("bf16, no tile divides", "row // TOP_K", "row"),
        ("bf16, no tile divides", "if BY_ROUTER:", "if False:"),
        ("bf16, no tile divides", "(expert * N + held) * (K // PACKED)", "held * (K // PACKED)"),
        ("bf16, no tile divides", "real = row < rows", "real = row < rows - 1"),
        ("bf16, no tile divides", "depth_end = K\n", "depth_end = K - 16\n"),
        ("bf16, no tile divides", "tiles, tl.num_programs(0)", "tiles - 1, tl.num_programs(0)"),
        ("an expert with one row, one with none", "blocks_m - first_m, GROUP_SIZE_M", "blocks_m, GROUP_SIZE_M"),
        ("bf16, no tile divides", "tl.dot(w, a.T, total)", "tl.dot(w, a.T)"),
        ("bf16, no tile divides", "w_desc.load([expert.to(tl.int32) * N +", "w_desc.load([0 +"),
        ("fp16 with bias", "bias_ptr + expert * N", "bias_ptr"),
        ("without sorting", "place == 0, block_m", "place == 0, 0"),
        ("fp8, a scale a block", "held // GROUP_N", "0 * held"),
        ("fp8, a scale a block", "a_scale_row + start // GROUP_K", "a_scale_row"),
        (
            "fp8, several steps along K have one scale",
            "a_scale_row + start // GROUP_K",
            "a_scale_row + start // BLOCK_SIZE_K",
        ),
        (
            "fp8, several steps along K have one scale",
            "w_scale_row + start // GROUP_K",
            "w_scale_row + start // BLOCK_SIZE_K",
        ),
        ("fp8, several steps along K have one scale", "held // GROUP_N", "held // BLOCK_SIZE_N"),
        ("fp8, several tiles have the scales of a row of blocks", "held // GROUP_N", "held // BLOCK_SIZE_N"),
        ("fp8, a scale a row", "a_scale_ptr + a_row", "a_scale_ptr + row"),
        ("fp8, a scale a tensor", "w_scale_ptr + expert)", "w_scale_ptr)"),
        ("other ranks", "tl.where(expert < 0, 0, K)", "K"),
        ("other ranks, bias, fp16", "tl.where(is_mine, bias, 0.0)", "bias"),
        ("8 bits, a scale a row", "w_scale_ptr + expert * N + held", "w_scale_ptr + held"),
        ("4 bits in groups", "tl.interleave(low, high)", "tl.interleave(high, low)"),
        ("4 bits in groups", "MIDDLE: tl.constexpr = 8", "MIDDLE: tl.constexpr = 7"),
        (
            "4 bits, several groups in a step, K of no whole steps",
            "+ tl.arange(0, GROUPS)",
            "+ 0 * tl.arange(0, GROUPS)",
        ),
        ("4 bits, several steps in a group, zero points", "group = start // GROUP_K", "group = start // BLOCK_SIZE_K"),
        ("4 bits, several steps in a group, zero points", "held % 2 * 4", "4 - held % 2 * 4"),
        ("4 bits, several steps in a group, zero points", "expert * (N // PACKED)", "expert * N"),
        ("8 bits in groups, fp16", "bits ^ 128", "bits"),
        ("8 bits in groups, fp16", "(expert * N + held)[:, None]", "held[:, None]"),
        ("8 bits, several groups in a step, zero points", "zero_ptr + zero_at", "zero_ptr + 0 * zero_at"),
    ],
)
def test_a_wrong_kernel_is_found(case: str, old: str, new: str, tmp_path: Path) -> None:
    templates = tmp_path / "templates"
    shutil.copytree(TEMPLATES, templates)
    kernel = templates / "own_moe.py.j2"
    assert old in kernel.read_text()
    kernel.write_text(kernel.read_text().replace(old, new))
    one = config(1, 1, 0) if "dot" in old else config(2, 0, int("w_desc" in old))
    found = checked(script_of(tmp_path, CASES[case], one, templates=templates), CASES[case], one)
    assert not found.ok and "GEMM is wrong in row" in found.message


@pytest.mark.parametrize(
    ("old", "new"),
    [("", ""), ("0x64006400", "0x64016400"), ("pair << 12", "pair << 11"), ("-1024", "-1023")],
)
def test_integers_of_4_bits_become_16_bit_floats(old: str, new: str, tmp_path: Path) -> None:
    """In fp16, which the interpreter multiplies as it is, not widened as in all other cases."""
    templates = tmp_path / "templates"
    shutil.copytree(TEMPLATES, templates)
    kernel = templates / "own_moe.py.j2"
    assert old in kernel.read_text()
    kernel.write_text(kernel.read_text().replace(old, new) if old else kernel.read_text())
    for zero_points in (False, True):
        problem = replace(INT4, out="fp16", zero_points=zero_points)
        one = config(0, 1, 0)
        found = checked_narrow(script_of(tmp_path, problem, one, templates=templates), problem, one)
        assert found.ok is not bool(old), found.message


def test_the_rows_are_as_ragged_as_the_cases_say() -> None:
    from gemm_tuner.moe import model, routing

    def rows(case: str) -> list[int]:
        one = CASES[case]
        return sorted(routing.counts(model.first_ids(one), one.E).tolist())

    assert rows("an expert with one row, one with none")[:2] == [0, 1]
    assert all(count % 16 for count in rows("rows that fill no block, topk 1"))
    assert rows("most experts have none").count(0) > 13


@pytest.mark.parametrize(
    "case",
    [
        "bf16, no tile divides",
        "other ranks",
        "without sorting",
        "fp8, a scale a block",
        "8 bits, a scale a row",
        "4 bits in groups",
    ],
)
def test_a_whole_call_is_the_operator(case: str, tmp_path: Path) -> None:
    """Alone, and with the rows as vLLM aligns them, where a row of its kernel has the time of ours beside its own."""
    most = 0.1 if CASES[case].dtype == "fp8_w8a8" else 0.01
    one = config(1, 0, 0)
    for problem in (CASES[case], beside(CASES[case], "vllm")):
        assert operator_error(script_of(tmp_path, problem, one), problem, one) < most

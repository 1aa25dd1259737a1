"""Fused MoE layers of public models, from their config.json: problems, spaces and what the rules keep.

Siblings: ``tests/compile/test_moe_models_compile.py``, ``tests/interpreter/test_moe_models_interpreted.py``,
``tests/export/test_moe_models_exported.py``.
"""

from __future__ import annotations

import itertools

import pytest
from moe_models import MODELS, SOURCES, kept, layer

from gemm_tuner.moe.servers import GRID

# (experts, N and K of a rank, topk, columns of w1)
SIZES = {
    "deepseek_v3": (256, 256, 7168, 8, 512),
    "qwen3_235b_a22b": (128, 384, 4096, 8, 768),
    "mixtral_8x7b": (8, 14336, 4096, 2, 28672),
    "llama4_maverick": (128, 1024, 5120, 1, 2048),
    "gpt_oss_120b": (128, 2880, 2880, 4, 5760),
}
FEW, MANY = (1, 64, 2048), 2048
# Of 16-bit types AMD's space has 40 000 configurations.
QUICK = [("sm_90", "deepseek_v3", "sglang"), ("gfx942", "deepseek_v3", "vllm"), ("sm_90", "gpt_oss_120b", "sglang")]
QUICK += [("sm_90", model, "vllm") for model in MODELS]


def is_quick(case: tuple[str, str, str]) -> bool:
    return case in QUICK


@pytest.mark.parametrize("model", MODELS)
def test_a_model_is_a_layer_at_each_of_the_servers_numbers_of_tokens(model: str) -> None:
    found = layer(model, "sm_90", "vllm")
    assert tuple(one.M for one in found) == GRID
    one = found[0]
    assert (one.E, one.N, one.K, one.topk, one.gates * one.N) == SIZES[model]
    assert (one.dtype, one.block_shape) == (("fp8_w8a8", (128, 128)) if model == "deepseek_v3" else ("bf16", (0, 0)))
    assert (one.activation, one.bias) == (("swigluoai", True) if model == "gpt_oss_120b" else ("silu", False))
    assert layer(model, "gfx942", "vllm")[0].fp8 == "fp8_e4m3_fnuz"


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, marks=() if is_quick(case) else pytest.mark.grid, id="-".join(case))
        for case in itertools.product(("sm_90", "gfx942"), MODELS, SOURCES)
    ],
)
def test_rules_leave_some_of_a_space_at_any_number_of_tokens(case: tuple[str, str, str]) -> None:
    arch, model, server = case
    for problem in layer(model, arch, server, None, "--m", ",".join(map(str, FEW if is_quick(case) else GRID))):
        found = kept(problem, arch)
        assert len(found) >= 64, problem.shape
        assert len(set(found)) == len(found)
        assert max(one.options()["BLOCK_SIZE_M"] for one in found) <= max(16, 2 * problem.M * problem.topk)


def test_of_few_rows_an_expert_tiles_are_small_for_a_large_gemm_too() -> None:
    """128 experts of 2048 tokens with one each: the busiest has 32 rows or less, and AMD's space is not left empty."""
    (problem,) = layer("llama4_maverick", "gfx942", "vllm", None, "--m", str(MANY))
    assert {one.options()["BLOCK_SIZE_M"] for one in kept(problem, "gfx942")} == {32}

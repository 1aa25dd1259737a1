"""What a whole call has beside its GEMMs in CuTe DSL, in the interpreter: rows sorted by expert, activation, sum."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from moe_runner import operator_error
from samples import ROOT, device

from gemm_tuner.core.plain_config import PlainConfig
from gemm_tuner.moe.problem import MoeProblem
from gemm_tuner.source import codegen

LAYER = MoeProblem("own", 5, 4, 48, 80, 2, seeds=1)
FIELDS = {"BLOCK_SIZE_M": 64, "BLOCK_SIZE_N": 128, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 1, "CLUSTER_M": 1, "PINGPONG": 1}
CONFIG = PlainConfig("cute_moe", tuple(FIELDS.items()))
FUSED = PlainConfig("cute_moe", tuple({**FIELDS, "FUSED_ACTIVATION": 1}.items()))
PAIRS = replace(LAYER, activation="swigluoai", bias=True)


@pytest.mark.parametrize(
    "problem",
    [
        LAYER,
        replace(LAYER, dtype="fp16", out="fp16", bias=True),
        replace(LAYER, M=1, E=26, topk=8),
        replace(LAYER, M=33, E=7, routing=("zipf:3.0",), activation="relu2_no_mul"),
        replace(LAYER, M=21, E=4, global_E=12),
    ],
    ids=["plain", "bias", "one token", "experts without rows", "experts of other ranks"],
)
def test_the_whole_operator_is_right(problem: MoeProblem, tmp_path: Path) -> None:
    assert error_of(problem, CONFIG, tmp_path) < 2e-3


def error_of(problem: MoeProblem, config: PlainConfig, folder: Path) -> float:
    target = device("sm_90").target
    script = codegen.write_script(ROOT / "templates", folder, "cute_moe", problem, [config], target)
    return operator_error(str(folder / script.file), problem, config)


@pytest.mark.parametrize(
    "problem",
    [replace(LAYER, activation="gelu"), PAIRS, replace(LAYER, M=21, global_E=12, activation="gelu_tanh")],
    ids=["halves", "pairs, bias", "experts of other ranks"],
)
def test_the_whole_operator_is_right_without_a_kernel_for_its_activation(problem: MoeProblem, tmp_path: Path) -> None:
    """The second GEMM reads what the first one wrote."""
    assert error_of(problem, FUSED, tmp_path) < 2e-3

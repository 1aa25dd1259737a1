"""Fused MoE kernels in CuTe DSL on a GPU, against float64 row by row; needs pip install '.[cute]'."""

from __future__ import annotations

import contextlib
import importlib.util
import io
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from gpu_work import Gpu
from moe_operator import operator_of

from gemm_tuner.cli import main as cli
from gemm_tuner.core.errors import EXIT_OK
from gemm_tuner.core.language import language_of
from gemm_tuner.core.plain_config import PlainConfig
from gemm_tuner.core.records import Verified
from gemm_tuner.core.workload import launch_all
from gemm_tuner.moe import model, operands, routing, sorted_rows, whole_call, whole_call_sorted
from gemm_tuner.moe.cute import ARCHITECTURE
from gemm_tuner.moe.launch import UP
from gemm_tuner.moe.problem import MoeProblem
from gemm_tuner.moe.workload import WORKLOAD
from gemm_tuner.report import moe_calls
from gemm_tuner.store import results

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(importlib.util.find_spec("cutlass") is None, reason="CuTe DSL is not installed"),
]
# No tile divides N and K, and no extent is a multiple of 64.
LAYER = MoeProblem("own", 300, 16, 168, 272, 4, seeds=1)
FIELDS = {"BLOCK_SIZE_M": 64, "BLOCK_SIZE_N": 128, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 1, "CLUSTER_M": 1, "PINGPONG": 0}
CHANGES: tuple[dict[str, int], ...] = (
    {},
    {"PINGPONG": 1, "GROUP_SIZE_M": 8, "BLOCK_SIZE_N": 96},
    {"BLOCK_SIZE_M": 128, "CLUSTER_M": 2, "BLOCK_SIZE_N": 256, "GROUP_SIZE_M": 2},
    {"BLOCK_SIZE_M": 192, "BLOCK_SIZE_N": 64},
    {"BLOCK_SIZE_M": 192, "BLOCK_SIZE_N": 192, "CLUSTER_M": 2},
    {"BLOCK_SIZE_M": 256, "BLOCK_SIZE_N": 160, "down_BLOCK_SIZE_M": 128, "down_BLOCK_SIZE_N": 208, "down_PINGPONG": 1},
    {"BLOCK_SIZE_N": 32, "CLUSTER_M": 2, "PINGPONG": 1},
)
CONFIGS = tuple(PlainConfig("cute_moe", tuple({**FIELDS, **one}.items())) for one in CHANGES)
# The first GEMM computes the activation.
FUSED_CHANGES: tuple[dict[str, int], ...] = (
    {},
    {"PINGPONG": 1, "GROUP_SIZE_M": 8, "BLOCK_SIZE_N": 96},
    {"BLOCK_SIZE_M": 128, "CLUSTER_M": 2, "BLOCK_SIZE_N": 256, "GROUP_SIZE_M": 2},
    {"BLOCK_SIZE_M": 192, "PINGPONG": 1, "down_PINGPONG": 0, "down_BLOCK_SIZE_N": 192},
    {"BLOCK_SIZE_M": 256, "BLOCK_SIZE_N": 160},
    {"BLOCK_SIZE_M": 128, "BLOCK_SIZE_N": 192, "PINGPONG": 1, "CLUSTER_M": 2},
    {"BLOCK_SIZE_N": 32, "CLUSTER_M": 2},
)
FUSED = tuple(PlainConfig("cute_moe", tuple({**FIELDS, **one, "FUSED_ACTIVATION": 1}.items())) for one in FUSED_CHANGES)
NO_ROW = "other ranks, no row of this one"
CASES = {
    "uniform": LAYER,
    "zipf, some experts have no rows": replace(LAYER, E=64, routing=("zipf:2.5",)),
    "all rows at one expert": replace(LAYER, topk=1, routing=("zipf:60",)),
    "one token": replace(LAYER, M=1, E=100, topk=8),
    "one row": replace(LAYER, M=1, topk=1),
    "fp16 with bias": replace(LAYER, dtype="fp16", out="fp16", bias=True),
    "no gate, bias, K of whole steps": replace(LAYER, N=256, K=512, bias=True, activation="relu2_no_mul"),
    "experts of other ranks": replace(LAYER, E=8, global_E=24),
    NO_ROW: replace(LAYER, M=1, topk=1, E=1, global_E=40),
    "tokens of a real size": replace(LAYER, M=2048, E=128, N=768, K=2048, topk=8),
}


FUSED_CASES = {
    "uniform": LAYER,
    "zipf, some experts have no rows": replace(LAYER, E=64, routing=("zipf:2.5",)),
    "all rows at one expert": replace(LAYER, topk=1, routing=("zipf:60",)),
    "one token": replace(LAYER, M=1, E=100, topk=8),
    "gelu, fp16": replace(LAYER, dtype="fp16", out="fp16", activation="gelu"),
    "gelu by tanh, K of whole steps": replace(LAYER, N=256, K=512, activation="gelu_tanh"),
    "pairs, bias": replace(LAYER, activation="swigluoai", bias=True),
    "pairs without bias, fp16": replace(LAYER, activation="swigluoai", dtype="fp16", out="fp16"),
    "experts of other ranks": replace(LAYER, E=8, global_E=24),
    "tokens of a real size": replace(LAYER, M=2048, E=128, N=768, K=2048, topk=8),
}


@pytest.fixture(autouse=True)
def launchable(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    if gpu.device.target.arch != ARCHITECTURE:
        pytest.skip("the kernels are for Hopper")
    for name, value in language_of("cute").environment(gpu.cache).items():
        monkeypatch.setenv(name, value)


@pytest.fixture(scope="module")
def script(gpu: Gpu) -> ModuleType:
    if gpu.device.target.arch != ARCHITECTURE:
        pytest.skip("the kernels are for Hopper")
    pairs: Any = [(problem, config) for problem in CASES.values() for config in CONFIGS]
    pairs += [(problem, config) for problem in FUSED_CASES.values() for config in FUSED]
    return gpu.scripts(pairs, language="cute")["cute_moe", LAYER.signature]


@pytest.mark.parametrize("case", CASES)
def test_both_gemms_are_right_in_every_row(script: ModuleType, case: str) -> None:
    """Twice over with the same bits, and every row is written."""
    for config in CONFIGS:
        verdict = WORKLOAD.check(script, CASES[case], config.name, 1, "cuda")
        assert verdict.ok, f"{config.name}: {verdict.message}"
        assert (0 < verdict.error_over_bound <= 1) is (case != NO_ROW)


@pytest.mark.parametrize("case", FUSED_CASES)
def test_a_fused_activation_is_right_in_every_row(script: ModuleType, case: str) -> None:
    """With gates and values in halves and in pairs; what is rounded before the activation would be wrong."""
    for config in FUSED:
        verdict = WORKLOAD.check(script, FUSED_CASES[case], config.name, 1, "cuda")
        assert verdict.ok, f"{config.name}: {verdict.message}"
        assert 0 < verdict.error_over_bound <= 1


def test_a_fused_activation_writes_its_own_rows_and_nothing_behind_them(script: ModuleType) -> None:
    """Those of other ranks' experts, which are behind the last, and the rest of C's memory are left alone."""
    import torch

    problem = FUSED_CASES["experts of other ranks"]
    (given,) = operands.make(problem, 0, "cuda")
    up = given.gemms[UP].c.view(-1)
    written = int(sorted_rows.of(given).starts[problem.E]) * problem.N
    for config in FUSED:
        up.fill_(float("nan"))
        launch_all(WORKLOAD.launches(script, script.CONFIGS[config.name], problem, given, None, 132)[:1])
        torch.cuda.synchronize()
        assert 0 < written < up.numel() // 2
        assert not up[:written].isnan().any() and up[written:].isnan().all(), config.name


def test_the_rows_are_as_ragged_as_the_cases_say() -> None:
    def rows(case: str) -> list[int]:
        return sorted(routing.counts(model.first_ids(CASES[case]), CASES[case].E).tolist())

    assert rows("zipf, some experts have no rows").count(0) > 2
    assert rows("all rows at one expert")[-2:] == [0, 300]
    assert rows("one token").count(0) == 92 and 300 % 64
    assert rows(NO_ROW) == [0]


@pytest.mark.parametrize(
    "case", ["uniform", "zipf, some experts have no rows", "one token", "fp16 with bias", "experts of other ranks"]
)
def test_a_whole_call_is_the_operator(script: ModuleType, case: str) -> None:
    """Also as a CUDA graph that is replayed over results of another."""
    are_the_operator(script, CASES[case], CONFIGS[:3])


@pytest.mark.parametrize("case", ["uniform", "one token", "gelu, fp16", "pairs, bias", "experts of other ranks"])
def test_a_whole_call_without_a_kernel_for_its_activation_is_the_operator(script: ModuleType, case: str) -> None:
    are_the_operator(script, FUSED_CASES[case], FUSED[:3])


def are_the_operator(script: ModuleType, of: MoeProblem, configs: Sequence[PlainConfig]) -> None:
    import torch

    problem = replace(of, M=min(of.M, 48))
    (given,) = operands.make(problem, 0, "cuda")
    for config in configs:
        call = whole_call_sorted.made(WORKLOAD, script, script.CONFIGS[config.name], given)
        expected = operator_of(problem, given, call.x)
        replay = whole_call.captured(call)
        for again in (call.run, replay, replay):
            call.out.fill_(float("nan"))
            again()
            torch.cuda.synchronize()
            error = (call.out.double() - expected).abs().max() / expected.abs().max()
            assert float(error) < 0.02


def test_whole_calls_tell_what_fusing_the_activation_saves(tmp_path: Path) -> None:
    """The row is of GEMMs that leave the activation to another kernel."""
    file = tmp_path / "moe.yaml"
    layer = ["--E", "16", "--N", "256", "--K", "512", "--topk", "4", "--m", "8,512", "--families", "cute_moe"]
    with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
        assert cli.main(["moe", *layer, "--output_dir", str(tmp_path), "-o", str(file)]) == EXIT_OK
    calls = moe_calls.read(file)
    for row in results.read(file).rows:
        assert row.config is not None and row.config.options()["FUSED_ACTIVATION"] == 0
        derived, call = row.facts["derived"], calls[row.problem.key]
        assert "FUSED_ACTIVATION1" in derived["fused_kernel"] and derived["fused_kernel_us"] > 0
        assert call["configs"]["fused"] == derived["fused_kernel"]
        assert 0 < call["us"]["fused"] < 2 * call["us"]["tuned"]


def test_it_is_tuned_alone_and_beside_ours_in_triton(tmp_path: Path) -> None:
    """A winner in CuTe DSL has ours in Triton as substitute."""
    layer = ["--E", "16", "--N", "256", "--K", "512", "--topk", "4", "--m", "8,512", "--budget", "120"]
    found = {}
    for name, words in (("alone", ("--families", "cute_moe")), ("both", ())):
        file = tmp_path / f"{name}.yaml"
        with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
            status = cli.main(["moe", *layer, *words, "--output_dir", str(tmp_path), "-o", str(file)])
        assert status == EXIT_OK
        found[name] = results.read(file).rows
    assert [row.config and row.config.family for row in found["alone"]] == ["cute_moe"] * 2
    for row in (*found["alone"], *found["both"]):
        assert row.verified is Verified.TRUE and row.facts["median_us"] > 0
    for row in found["both"]:
        assert row.config is not None and row.config.family in ("own_moe", "cute_moe")
        assert (
            (row.facts.get("language") == "cute") == (row.config.family == "cute_moe") == (row.substitute is not None)
        )

"""Configurations that are checked in sequence on a GPU, with what they share: the verdicts of separate checks."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from damaging_kernels import DAMAGES, IDLES, ONE_TILE, ORDERS, RIGHT, faulty_templates
from gpu_work import Gpu
from test_moe_on_gpu import INTEGERS, LAYER, configs_of

from gemm_tuner.gemm.problem import GemmProblem
from gemm_tuner.moe.workload import WORKLOAD as MOE


def test_faulty_kernels_make_no_other_one_wrong(gpu: Gpu, tmp_path: Path) -> None:
    """Nor right: C of the one before is there no more."""
    from gemm_tuner.gemm.check import check, examiner

    configs = {columns: gpu.config(64, columns, 32) for columns in (RIGHT, DAMAGES, IDLES)}
    pairs = [(ONE_TILE, config) for config in configs.values()]
    script = gpu.scripts(pairs, faulty_templates(tmp_path))["gemm_tile", ONE_TILE.signature]
    alone = {columns: check(script, ONE_TILE, config.name, 1, "cuda") for columns, config in configs.items()}
    assert [alone[columns].ok for columns in (RIGHT, DAMAGES, IDLES)] == [True, False, False]
    for order in ORDERS:
        together = examiner(ONE_TILE, 1, "cuda")
        found = [together.verdict(script, configs[columns].name) for columns in order]
        assert found == [alone[columns] for columns in order]


@pytest.mark.parametrize("kind", ["bf16", "bias, C_in, gelu", "fp8, one scale", "fp8 in rows", "int8", "odd"])
def test_configurations_of_all_families_get_the_verdicts_of_separate_checks(gpu: Gpu, kind: str) -> None:
    from gemm_tuner.gemm.check import check, examiner

    plain = GemmProblem(1000, 1040, 2064)
    problem = {
        "bf16": plain,
        "bias, C_in, gelu": replace(plain, bias=True, beta=-1.5, alpha=0.75, activation="gelu"),
        "fp8, one scale": replace(plain, dtype_a="fp8_e4m3", dtype_b="fp8_e4m3", scaling="tensor"),
        "fp8 in rows": replace(plain, dtype_a="fp8_e4m3", dtype_b="fp8_e4m3", scaling="row_col"),
        "int8": replace(plain, dtype_a="int8", dtype_b="int8", dtype_c="int32"),
        "odd": replace(plain, m=999, n=1001, k=1003),
    }[kind]
    if not gpu.has_type(problem.rate_key):
        pytest.skip("the GPU does not multiply this type")
    pairs = [(problem, config) for config in gpu.configs() if gpu.takes(problem, config)]
    scripts = gpu.scripts(pairs)
    together = examiner(problem, 1, "cuda")
    for _, config in pairs:
        script = scripts[config.family, problem.signature]
        verdict = together.verdict(script, config.name)
        assert verdict == check(script, problem, config.name, 1, "cuda") and verdict.ok, verdict.message
    assert len(pairs) > 4 and gpu.counter.compiled == 0


def test_a_configuration_waits_four_times_for_the_gpu(gpu: Gpu) -> None:
    """For C and its repeated calls, for C of the exact operands, and for whether all is intact."""
    import torch

    from gemm_tuner.gemm.check import examiner

    problem = GemmProblem(1024, 1024, 1024)
    config = gpu.config(64, 64, 32)
    script, together = gpu.script(problem, config), examiner(problem, 1, "cuda")
    assert together.verdict(script, config.name).ok
    with warnings.catch_warnings(record=True) as waits:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            verdict = together.verdict(script, config.name)
        finally:
            torch.cuda.set_sync_debug_mode("default")
    where = [f"{one.filename}:{one.lineno}" for one in waits if "called a synchronizing" in str(one.message)]
    assert verdict.ok and 1 <= len(where) <= 4, where


def test_what_shows_writes_to_large_tensors_takes_little_memory(gpu: Gpu) -> None:
    import torch

    from gemm_tuner.languages.seal import Seal, are_intact

    large = torch.zeros(2**30, dtype=torch.uint8, device="cuda")
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    seal = Seal([large])
    assert torch.cuda.max_memory_allocated() - before < large.numel() // 2
    large[2**29 + 1] = 1
    assert not are_intact([seal])


@pytest.mark.parametrize("kind", ["bf16", "fp8 in blocks", "int4", "other ranks"])
@pytest.mark.parametrize("room", ["for all", "for no operands"])
def test_configurations_of_a_layer_get_the_verdicts_of_separate_checks(
    gpu: Gpu, kind: str, room: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gemm_tuner.moe import cases

    fp8 = "fp8_e4m3_fnuz" if gpu.device.target.facts.fp8 == "fnuz" else "fp8_e4m3"
    blocks: dict[str, Any] = {"dtype": "fp8_w8a8", "fp8": fp8, "scaling": "block", "block_shape": (64, 64)}
    layer = {
        "bf16": LAYER,
        "fp8 in blocks": replace(LAYER, N=192, K=320, **blocks),
        "int4": replace(LAYER, N=192, K=320, **INTEGERS["int4"]),
        "other ranks": replace(LAYER, global_E=40),
    }[kind]
    if not gpu.has_type(layer.rate_key):
        pytest.skip("the GPU does not multiply this type")
    if room == "for no operands":
        monkeypatch.setattr(cases, "KEPT_BYTES", 2 * cases.operand_bytes(layer) - 1)
    configs = configs_of(gpu)
    pairs = [(layer, one) for one in configs]
    script = gpu.scripts(pairs)["own_moe", layer.signature]  # type: ignore[arg-type]
    together = MOE.examiner(layer, 1, "cuda")
    for _ in range(2):
        for config in configs:
            verdict = together.verdict(script, config.name)
            assert verdict == MOE.check(script, layer, config.name, 1, "cuda") and verdict.ok, verdict.message
    assert gpu.counter.compiled == 0

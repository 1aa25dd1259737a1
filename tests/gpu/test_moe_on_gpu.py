"""Fused MoE kernels on a GPU: this package's own against float64 in all types, SGLang's with TMA, and a run beside a
server's kernel.

SGLang's kernel is one of the tests; its own, fused_moe_triton_kernels.py of SGLang 0.5.23, is taken, too, where
GEMM_TUNER_SGLANG_MOE_KERNEL says the file.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import moe_kernel_source
import pytest
from gpu_work import Gpu

from gemm_tuner.cli import main as cli
from gemm_tuner.core.errors import EXIT_OK
from gemm_tuner.core.plain_config import PlainConfig
from gemm_tuner.core.records import Verified
from gemm_tuner.moe import kernel_source
from gemm_tuner.moe.problem import MoeProblem
from gemm_tuner.moe.servers import SERVERS, entry
from gemm_tuner.moe.workload import WORKLOAD
from gemm_tuner.store import results

# A hundred rows an expert in the mean; no power of two divides them.
LAYER = MoeProblem("own", 200, 16, 160, 272, 8, seeds=1)
FEW = replace(LAYER, M=3, E=100, topk=1)  # not sorted
TMA_WAYS = tuple(itertools.product((0, 1), (0, 1)))
WAYS = (
    {"PROGRAMS_PER_SM": 0},
    {"PROGRAMS_PER_SM": 2, "GROUP_SIZE_M": 8, "num_stages": 3},
    {"PROGRAMS_PER_SM": 1, "SWAP_AB": 1},
    {"PROGRAMS_PER_SM": 1, "W_BY_TMA": 1},
    {"SWAP_AB": 1, "W_BY_TMA": 1, "BLOCK_SIZE_M": 8},
)


def configs_of(gpu: Gpu) -> list[PlainConfig]:
    """Those of WAYS that the GPU has instructions for."""
    target = gpu.device.target
    plain = {"BLOCK_SIZE_M": 32, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 1, "num_warps": 4,
             "num_stages": 2, "PROGRAMS_PER_SM": 0, "SWAP_AB": 0, "W_BY_TMA": 0}  # fmt: skip
    amd = {"waves_per_eu": 0, "matrix_instr_nonkdim": 16, "kpack": 1} if target.backend == "hip" else {}
    made = [{**plain, **way, **amd} for way in WAYS]
    there = [one for one in made if target.facts.tma or not one["W_BY_TMA"]]
    return [PlainConfig("own_moe", tuple(one.items())) for one in there if not (amd and one["SWAP_AB"])]


INTEGERS: dict[str, dict[str, Any]] = {
    "int8": {"dtype": "int8_w8a16", "scaling": "channel"},
    "int8 in groups, fp16": {"dtype": "int8_w8a16", "out": "fp16", "scaling": "group", "block_shape": (0, 32)},
    "int8, zero points": {"dtype": "int8_w8a16", "scaling": "group", "block_shape": (0, 64), "zero_points": True},
    "int4": {"dtype": "int4_w4a16", "scaling": "group", "block_shape": (0, 64)},
    "int4, fp16, several groups in a step": {
        "dtype": "int4_w4a16", "out": "fp16", "scaling": "group", "block_shape": (0, 32)
    },
    "int4, zero points": {"dtype": "int4_w4a16", "scaling": "group", "block_shape": (0, 64), "zero_points": True},
}  # fmt: skip
OTHER_RANKS = replace(LAYER, global_E=40)


@pytest.mark.parametrize("scaling", ["none", "fp16 with bias", "tensor", "channel", "block", *INTEGERS])
def test_our_kernel_is_right_in_all_types(gpu: Gpu, scaling: str) -> None:
    fp8 = "fp8_e4m3_fnuz" if gpu.device.target.facts.fp8 == "fnuz" else "fp8_e4m3"
    for layer in (LAYER, FEW, *([OTHER_RANKS] if scaling in ("none", "fp16 with bias", "block", "int4") else [])):
        if scaling == "none":
            problem = layer
        elif scaling == "fp16 with bias":
            problem = replace(layer, dtype="fp16", out="fp16", bias=True)
        elif scaling in INTEGERS:
            problem = replace(layer, N=192, K=320, **INTEGERS[scaling])
        else:
            block = (64, 64) if scaling == "block" else (0, 0)
            problem = replace(layer, dtype="fp8_w8a8", fp8=fp8, scaling=scaling, block_shape=block, N=192, K=320)
        if not gpu.has_type(problem.rate_key):
            pytest.skip("the GPU does not multiply this type")
        configs = configs_of(gpu)
        pairs = [(problem, config) for config in configs]
        script = gpu.scripts(pairs)["own_moe", problem.signature]  # type: ignore[arg-type]
        for config in configs:
            verdict = WORKLOAD.check(script, problem, config.name, 1, "cuda")
            assert verdict.ok, f"{config.name}: {verdict.message}"
            assert 0 < verdict.error_over_bound <= 1
        assert gpu.counter.compiled == 0


@pytest.mark.parametrize("whose", ["of the tests", "its own"])
@pytest.mark.parametrize("scaling", ["none", "block"])
def test_sglangs_kernel_is_right_with_tma(gpu: Gpu, scaling: str, whose: str, tmp_path: Path) -> None:
    """Each GEMM with and without: the first one writes its rows sorted where the second one reads them so."""
    if not gpu.device.target.facts.tma:
        pytest.skip("the GPU has no TMA")
    file = tmp_path / "fused_moe_triton_kernels.py"
    if whose == "of the tests":
        file.write_text(moe_kernel_source.sglang())
    elif (given := os.environ.get("GEMM_TUNER_SGLANG_MOE_KERNEL")) is not None:
        file = Path(given)
    else:
        pytest.skip("GEMM_TUNER_SGLANG_MOE_KERNEL names no file")
    server, kernel = kernel_source.read(str(file), SERVERS["sglang"])
    layer = replace(LAYER, server=server.name, kernel=kernel, kernel_sha=kernel.sha, N=192, K=320)
    block: dict[str, Any] = {"dtype": "fp8_w8a8", "scaling": "block", "block_shape": (64, 64)}
    for problem in (layer, replace(layer, M=3), replace(layer, global_E=40)):
        one = replace(problem, **block) if scaling == "block" else problem
        configs = []
        for tile, (up, down) in itertools.product(((16, 32, 64, 1, 4, 3), (64, 64, 64, 8, 4, 2)), TMA_WAYS):
            fields = {**entry(*tile), "USE_TMA": up, **({"down_USE_TMA": down} if up != down else {})}
            configs.append(PlainConfig("sglang_moe", tuple(fields.items())))
        pairs = [(one, config) for config in configs]
        script = gpu.scripts(pairs)["sglang_moe", one.signature]  # type: ignore[arg-type]
        for config in configs:
            verdict = WORKLOAD.check(script, one, config.name, 1, "cuda")
            assert verdict.ok, f"{config.name}: {verdict.message}"
            assert 0 < verdict.error_over_bound <= 1
        assert gpu.counter.compiled == 0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("moe")
    (found / "fused_moe.py").write_text(moe_kernel_source.VLLM)
    return found


def run(folder: Path, name: str, *words: str) -> results.Results:
    file = folder / name
    layer = ["--E", "16", "--N", "256", "--K", "512", "--topk", "4", "--m", "8,256", "--budget", "120"]
    with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
        status = cli.main(["moe", *layer, *words, "--output_dir", str(folder), "-o", str(file)])
    assert status == EXIT_OK
    return results.read(file)


def test_the_row_names_ours_and_the_servers_with_both_times(gpu: Gpu, folder: Path) -> None:
    """The server's kernel of the tests is as plain as can be: ours is not slower than twice its time."""
    found = run(folder, "beside.yaml", "--kernel_from", str(folder / "fused_moe.py"))
    assert len(found.rows) == 2
    for row in found.rows:
        assert row.config is not None and row.config.family == "vllm_moe" and row.verified is Verified.TRUE
        derived = row.facts["derived"]
        assert derived["own_kernel"].startswith(("own_moe_", "cute_moe_"))
        assert 0 < derived["own_kernel_us"] < 2 * row.facts["median_us"]


def test_ours_is_tuned_alone(gpu: Gpu, folder: Path) -> None:
    for row in run(folder, "alone.yaml", "--families", "own_moe").rows:
        assert row.config is not None and row.config.family == "own_moe" and row.verified is Verified.TRUE
        assert row.facts["median_us"] > 0 and "vendor_us" not in row.facts


def test_the_configurations_of_a_results_file_are_timed_again(gpu: Gpu, folder: Path) -> None:
    kernel = ("--kernel_from", str(folder / "fused_moe.py"))
    before = run(folder, "served.yaml", *kernel, "--serve", "vllm", "--no_whole_calls").rows
    words = ["--from", str(folder / "served.yaml"), *kernel, "--output_dir", str(folder)]
    for task, more in (("--benchmark", ["-o", str(folder / "now.yaml")]), ("--compare_wo_tuning", [])):
        with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
            assert cli.main(["moe", *words, task, *more]) == EXIT_OK
    after = results.read(folder / "now.yaml").rows
    assert [(row.problem, row.config) for row in after] == [(row.problem, row.config) for row in before]
    assert all(row.facts["median_us"] > 0 and row.verified is Verified.TRUE for row in after)

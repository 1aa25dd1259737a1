"""This package's own fused MoE kernel, compiled for GPUs that are not here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from work import LIMIT_S, ROOT, WORKERS, space_of

from gemm_tuner.compile import compile_tasks
from gemm_tuner.compile.compile_pool import CompilePool
from gemm_tuner.core.plain_config import PlainConfig
from gemm_tuner.core.records import CompileResult, Status
from gemm_tuner.languages.triton.language import LANGUAGE
from gemm_tuner.moe.problem import MoeProblem

LAYER = MoeProblem("own", 64, 16, 128, 256, 4)
FP8 = replace(LAYER, dtype="fp8_w8a8", scaling="block", block_shape=(128, 128))
INT4 = replace(LAYER, dtype="int4_w4a16", scaling="group", block_shape=(0, 128))
TILE = {"BLOCK_SIZE_M": 32, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 8, "num_warps": 4,
        "num_stages": 3, "PROGRAMS_PER_SM": 0, "SWAP_AB": 0, "W_BY_TMA": 0}  # fmt: skip
OF_AMD = {"num_stages": 2, "waves_per_eu": 2, "matrix_instr_nonkdim": 16, "kpack": 1}


def compiled(folder: Path, arch: str, work: Mapping[MoeProblem, PlainConfig]) -> list[CompileResult]:
    target = space_of(arch).device.target
    scripts = compile_tasks.write_scripts(ROOT / "templates", folder, work.items(), target)
    tasks = [compile_tasks.task_for(scripts, problem, config, target) for problem, config in work.items()]
    with CompilePool(LANGUAGE, target, WORKERS, folder / "cache", folder / "log.txt", folder, LIMIT_S) as pool:
        answers = {id(task): result for task, result in pool.run(tasks)}
    return [answers[id(task)] for task in tasks]


@pytest.mark.parametrize("arch", ["sm_90", "gfx942"])
def test_both_gemms_compile_for_all_types(arch: str, tmp_path: Path) -> None:
    fp8 = replace(FP8, fp8="fp8_e4m3_fnuz") if arch == "gfx942" else FP8
    more = OF_AMD if arch == "gfx942" else {}
    swapped = {"SWAP_AB": 1, "BLOCK_SIZE_M": 8} if arch == "sm_90" else {}
    by_tma = {"W_BY_TMA": 1} if arch == "sm_90" else {}
    plain, whole = (0, 0), {"scaling": "channel", "block_shape": (0, 0)}
    work = {
        LAYER: {},
        replace(LAYER, K=512): {"PROGRAMS_PER_SM": 1, **by_tma},
        replace(LAYER, M=1): {"PROGRAMS_PER_SM": 1},  # without sorting
        replace(LAYER, dtype="fp16", out="fp16", bias=True, K=272): swapped,
        fp8: {"PROGRAMS_PER_SM": 2, **by_tma},
        replace(fp8, **whole): swapped,
        replace(fp8, scaling="tensor", block_shape=plain): {**swapped, **by_tma},
        replace(LAYER, dtype="int8_w8a16", scaling="channel"): {**swapped, **by_tma},
        INT4: {**swapped, **by_tma},
        replace(INT4, zero_points=True, block_shape=(0, 32)): {},
        replace(INT4, dtype="int8_w8a16", out="fp16", zero_points=True): swapped,
    }
    configs = {one: PlainConfig("own_moe", tuple({**TILE, **more, **own}.items())) for one, own in work.items()}
    results = compiled(tmp_path, arch, configs)
    assert [(result.status, result.message) for result in results] == [(Status.OK, "")] * len(work)
    assert all(len(result.entries) == 2 for result in results)

"""Fused MoE layers of public models, from their config.json: what the server launches compiles for GPUs that are not
here, and is right in the interpreter at small sizes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import moe_kernel_source
import pytest
from work import LIMIT_S, ROOT, WORKERS, space_of

from gemm_tuner.cli import commands
from gemm_tuner.cli.commands import moe
from gemm_tuner.compile import compile_tasks
from gemm_tuner.compile.compile_pool import CompilePool
from gemm_tuner.core.plain_config import PlainConfig
from gemm_tuner.core.records import Status
from gemm_tuner.languages.triton.language import LANGUAGE
from gemm_tuner.moe.problem import MoeProblem
from gemm_tuner.moe.workload import WORKLOAD

MODELS = {
    "deepseek_v3": ("--tp", "8"),
    "qwen3_235b_a22b": ("--tp", "4"),
    "mixtral_8x7b": (),
    "llama4_maverick": ("--tp", "8"),
    "gpt_oss_120b": ("--dtype", "bf16", "--bias"),
}


def layers(folder: Path, arch: str) -> list[tuple[MoeProblem, PlainConfig]]:
    """Of each model at 64 tokens, with the server's default."""
    kernel = folder / "fused_moe.py"
    kernel.write_text(moe_kernel_source.VLLM)
    found = []
    for model, flags in MODELS.items():
        source = ROOT / "tests" / "data" / "moe" / f"{model}.json"
        words = ["--from", str(source), *flags, "--m", "64", "--kernel_from", str(kernel), "--arch", arch]
        (problem,) = moe.problems(commands.build_parser("moe").parse(words))
        found.append((problem, WORKLOAD.default_config(problem, space_of(arch).device)))
    return found


@pytest.mark.parametrize("arch", ["sm_90", "gfx942"])
def test_defaults_compile(arch: str, tmp_path: Path) -> None:
    target, work = space_of(arch).device.target, layers(tmp_path, arch)
    scripts = compile_tasks.write_scripts(ROOT / "templates", tmp_path, work, target)
    tasks = [compile_tasks.task_for(scripts, problem, config, target) for problem, config in work]
    with CompilePool(LANGUAGE, target, WORKERS, tmp_path / "cache", tmp_path / "log.txt", tmp_path, LIMIT_S) as pool:
        results = [result for _, result in pool.run(tasks)]
    assert [(one.status, one.message) for one in results] == [(Status.OK, "")] * len(MODELS)
    assert all(one.registers > 0 for one in results)


def test_sizes_of_checks_keep_what_a_model_is(tmp_path: Path) -> None:
    """Types, scales, activation and bias; tests/interpreter/test_moe.py runs such sizes."""
    for problem, config in layers(tmp_path, "sm_90"):
        for small in WORKLOAD.check_problems(problem, config.to_dict(), descriptors=False, interpreted=True):
            assert isinstance(small, MoeProblem) and small.rows * small.N * small.K <= 2**21
            assert replace(small, M=64, E=problem.E, N=problem.N, K=problem.K, topk=problem.topk,
                           seeds=problem.seeds) == problem  # fmt: skip

"""Fused MoE layers of public models: what the server launches, and some of what the rules keep, compiles for GPUs that
are not here. By default, of one model few tokens by one server's kernel and many by the other's."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from moe_models import MODELS, SOURCES, layer, sample
from work import LIMIT_S, ROOT, WORKERS, space_of

from gemm_tuner.compile import compile_tasks
from gemm_tuner.compile.compile_pool import CompilePool
from gemm_tuner.core.plain_config import PlainConfig
from gemm_tuner.core.records import Status
from gemm_tuner.languages.triton.language import LANGUAGE
from gemm_tuner.moe.problem import MoeProblem

# Where two GEMMs of few rows differ, and where every expert has several blocks.
TOKENS = "64,2048"
SAMPLE = 2
QUICK = (("deepseek_v3", "vllm", "sm_90", "64", 1), ("deepseek_v3", "sglang", "gfx942", "2048", 1))
WHOLE = itertools.product(MODELS, SOURCES, ("sm_90", "gfx942"), (TOKENS,), (SAMPLE,))


@pytest.mark.parametrize(
    ("model", "server", "arch", "tokens", "count"),
    [*QUICK, *(pytest.param(*case, marks=pytest.mark.grid) for case in WHOLE)],
)
def test_the_default_and_a_sample_compile(
    model: str, server: str, arch: str, tokens: str, count: int, tmp_path: Path
) -> None:
    target = space_of(arch).device.target
    work: list[tuple[MoeProblem, PlainConfig]] = [
        (problem, config)
        for problem in layer(model, arch, server, tmp_path / "kernel", "--m", tokens)
        for config in sample(problem, arch, count)
    ]
    scripts = compile_tasks.write_scripts(ROOT / "templates", tmp_path, work, target)
    tasks = [compile_tasks.task_for(scripts, problem, config, target) for problem, config in work]
    with CompilePool(LANGUAGE, target, WORKERS, tmp_path / "cache", tmp_path / "log.txt", tmp_path, LIMIT_S) as pool:
        answers = {id(task): result for task, result in pool.run(tasks)}
    results = [answers[id(task)] for task in tasks]
    # Registers that spill are a verdict on a configuration, which the compiler gives after it made both binaries.
    assert {(one.status, one.message) for one in results} <= {(Status.OK, ""), (Status.SPILLED, "")}
    defaults = results[:: count + 1]
    assert [one.status for one in defaults] == [Status.OK] * len(tokens.split(","))
    assert all(one.registers > 0 and len(one.entries) == 2 for one in results)

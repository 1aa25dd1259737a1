"""A server's fused MoE kernel, taken from a file, compiled for GPUs that are not here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import moe_kernel_source
import pytest
from work import LIMIT_S, ROOT, WORKERS, space_of

from gemm_tuner.compile import compile_tasks
from gemm_tuner.compile.compile_pool import CompilePool
from gemm_tuner.core.plain_config import PlainConfig
from gemm_tuner.core.records import CompileResult, Status
from gemm_tuner.languages.triton.language import LANGUAGE
from gemm_tuner.moe import kernel_source
from gemm_tuner.moe.problem import MoeProblem
from gemm_tuner.moe.servers import entry

LAYER = MoeProblem("vllm", 64, 16, 64, 128, 4)


def compiled(
    folder: Path, arch: str, source: str, work: Sequence[tuple[MoeProblem, tuple[int, ...]]]
) -> list[CompileResult]:
    """The results in the order of the work."""
    made = [(problem, PlainConfig("vllm_moe", tuple(entry(*tile).items()))) for problem, tile in work]
    return compiled_configs(folder, arch, source, made)


def compiled_configs(
    folder: Path, arch: str, source: str, work: Sequence[tuple[MoeProblem, PlainConfig]]
) -> list[CompileResult]:
    folder.mkdir(exist_ok=True)
    (folder / "kernel.py").write_text(source)
    _, kernel = kernel_source.read(str(folder / "kernel.py"))
    target = space_of(arch).device.target
    made = [(replace(problem, kernel=kernel, kernel_sha=kernel.sha), config) for problem, config in work]
    scripts = compile_tasks.write_scripts(ROOT / "templates", folder, made, target)
    tasks = [compile_tasks.task_for(scripts, problem, config, target) for problem, config in made]
    with CompilePool(LANGUAGE, target, WORKERS, folder / "cache", folder / "log.txt", folder, LIMIT_S) as pool:
        answers = {id(task): result for task, result in pool.run(tasks)}
    return [answers[id(task)] for task in tasks]


@pytest.mark.parametrize("arch", ["sm_90", "gfx942"])
def test_both_gemms_compile_and_tokens_share_binaries(arch: str, tmp_path: Path) -> None:
    """Whether 16 divides the rows, and whether they are sorted, are compiled in; their number is not."""
    tile = (16, 32, 64, 1, 4, 2)
    work = [(LAYER.at(tokens), tile) for tokens in (64, 1024, 5, 1)]
    results = compiled(tmp_path, arch, moe_kernel_source.VLLM, work)
    assert [(result.status, result.message) for result in results] == [(Status.OK, "")] * 4
    assert [len(result.entries) for result in results] == [2] * 4
    assert [result.cached for result in results] == [False, True, False, False]
    assert results[0].specialization == results[1].specialization
    assert len({result.specialization for result in results}) == 3


def test_sglangs_kernel_compiles_with_and_without_tma(tmp_path: Path) -> None:
    """The first GEMM is another binary where the second one takes its rows as they are placed."""
    layer, block = replace(LAYER, server="sglang"), {"scaling": "block", "block_shape": (64, 64)}
    tile, tma = entry(64, 64, 64, 1, 4, 3), "USE_TMA"
    ways = ({tma: 0}, {tma: 0, f"down_{tma}": 1}, {tma: 1}, {tma: 1, f"down_{tma}": 0})
    for problem in (layer, replace(layer, dtype="fp8_w8a8", **block)):  # type: ignore[arg-type]
        configs = [PlainConfig("sglang_moe", tuple({**tile, **way}.items())) for way in ways]
        folder = tmp_path / problem.dtype
        results = compiled_configs(
            folder, "sm_90", moe_kernel_source.sglang(), [(problem, config) for config in configs]
        )
        assert [(result.status, result.message) for result in results] == [(Status.OK, "")] * len(ways)
        binaries = [tuple(result.entries) for result in results]
        assert len({entry for both in binaries for entry in both}) == 6  # up: by TMA or not, sorted or not
        assert binaries[0][1] == binaries[3][1] and binaries[1][1] == binaries[2][1]


def test_what_only_the_second_gemm_needs_counts(tmp_path: Path) -> None:
    source = moe_kernel_source.VLLM
    fails = source.replace(
        "    pid = tl.program_id(0)\n", "    tl.static_assert(top_k != 1)\n    pid = tl.program_id(0)\n"
    )
    (result,) = compiled(tmp_path / "fails", "sm_90", fails, [(LAYER, (16, 32, 64, 1, 4, 2))])
    assert result.status is Status.COMPILE_ERROR and "top_k" in result.message
    # A tile of the second GEMM alone that takes shared memory.
    more = "    if MUL_ROUTED_WEIGHT:\n        total += tl.dot(tl.full((BLOCK_SIZE_M, 256), 1.0, tl.bfloat16), "
    more += "tl.trans(tl.load(b_ptr + tl.arange(0, BLOCK_SIZE_N)[:, None] * 256 + tl.arange(0, 256)[None, :])))\n"
    large = source.replace("    if HAS_BIAS:\n", f"{more}    if HAS_BIAS:\n", 1)
    (plain,) = compiled(tmp_path / "plain", "sm_90", source, [(LAYER, (16, 32, 64, 1, 4, 2))])
    (other,) = compiled(tmp_path / "large", "sm_90", large, [(LAYER, (16, 32, 64, 1, 4, 2))])
    assert (plain.status, other.status) == (Status.OK, Status.OK)
    assert other.shared_bytes > plain.shared_bytes
    assert other.registers == plain.registers

"""A server's own kernel, taken from a file, compiled for a GPU that is not here."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from consumer_sources import SGLANG, VLLM, write_source
from work import LIMIT_S, ROOT, WORKERS, config_for, space_of

from gemm_tuner.compile import compile_tasks
from gemm_tuner.compile.compile_pool import CompilePool
from gemm_tuner.consumers import consumer_kernel
from gemm_tuner.core.records import CompileResult, Status
from gemm_tuner.gemm.config import KernelConfig
from gemm_tuner.gemm.problem import GemmProblem, Layout
from gemm_tuner.languages.triton.language import LANGUAGE

SIZE = GemmProblem(64, 256, 2048, "fp8_e4m3", "fp8_e4m3", "bf16", Layout.ROW, Layout.COL, scaling="block")
DEVICE = space_of("sm_90").device


def compiled(
    kernel: consumer_kernel.ConsumerKernel, folder: Path, *work: tuple[GemmProblem, KernelConfig]
) -> list[CompileResult]:
    """The results in the order of the work, each compiled on its own."""
    scripts = compile_tasks.write_scripts(ROOT / "templates", folder, work, DEVICE.target, (kernel,))
    tasks = [compile_tasks.task_for(scripts, p, c, DEVICE.target) for p, c in work]
    with CompilePool(LANGUAGE, DEVICE.target, WORKERS, folder / "cache", folder / "log.txt", folder, LIMIT_S) as pool:
        answers = {id(task): result for task, result in pool.run(tasks)}
    return [answers[id(task)] for task in tasks]


@pytest.mark.parametrize(
    ("server", "name", "more"), [("vllm", VLLM, ""), ("sglang", SGLANG, "needs_masking: tl.constexpr,")]
)
def test_each_group_size_is_a_kernel_of_its_own(server: str, name: str, more: str, tmp_path: Path) -> None:
    """It is a constant there, unlike in the families of this project."""
    kernel = consumer_kernel.read(server, write_source(tmp_path / "a.py", name, more))
    one, other = (config_for(DEVICE, 64, 64, 128, family=kernel.family, group=group) for group in (1, 8))
    assert one.kernel_symbol != other.kernel_symbol
    results = compiled(kernel, tmp_path, (SIZE, one), (SIZE, other), (SIZE, one))
    assert [(result.status, result.message) for result in results] == [(Status.OK, "")] * 3
    assert [result.cached for result in results] == [False, False, True]
    assert all(result.shared_bytes and result.registers for result in results)


def test_sizes_share_a_binary_only_where_triton_compiles_the_same(tmp_path: Path) -> None:
    """The blocks of scales in a row are an argument: 16 and 32 of them, then 9, then 1."""
    kernel = consumer_kernel.read("vllm", write_source(tmp_path / "a.py"))
    config = config_for(DEVICE, 64, 64, 128, family=kernel.family)
    work = [(replace(SIZE, k=k), config) for k in (2048, 4096, 1152, 128)]
    results = compiled(kernel, tmp_path, *work)
    assert [result.cached for result in results] == [False, True, False, False]
    names = [result.specialization for result in results]
    assert names[0] == names[1] and len(set(names)) == 3

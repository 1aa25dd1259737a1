"""Tasks for a compile pool: kernels that are right, and scripts that are not."""

from __future__ import annotations

import time
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

from gemm_tuner.compile.compile_pool import CompilePool
from gemm_tuner.core.architecture import Architecture
from gemm_tuner.core.language import CompileTask
from gemm_tuner.core.records import CompileResult, Status, Target
from gemm_tuner.core.script import Script, text_sha
from gemm_tuner.gemm.config import KernelConfig
from gemm_tuner.gemm.problem import GemmProblem
from gemm_tuner.gemm.specialization import specialization
from gemm_tuner.languages.triton.language import LANGUAGE
from gemm_tuner.source import codegen

ROOT = Path(__file__).resolve().parents[2]
SM_90 = Target("cuda", "sm_90", 32, Architecture("wgmma", tma=True))
PROBLEM = GemmProblem(64, 64, 64)
GOOD = KernelConfig("gemm_tile", 16, 16, 16, 1, 1, 1, 2)
# A limit that no compile here comes to, however busy the machine is.
LONG_S = 1000.0
OTHERS = tuple(replace(GOOD, BLOCK_SIZE_N=n) for n in (16, 32, 64))
# A script is loaded as the generated ones are: CONFIGS, scratch and calls.
BROKEN = """
import os, signal, subprocess, sys, time
import triton

@triton.jit
def kernel(pointer):
    {kernel}

CONFIGS = {{"broken": {{"binary": "broken"}}}}

def scratch(config, size, num_sms):
    return 0, 0

def calls(config, size, operands, scratch, num_sms):
    with open({pid_file!r}, "w") as stream:
        stream.write(str(os.getpid()))
    {calls}
    return [("kernel", kernel, (1,), (operands.a,), {{}})]
"""


def good_tasks(folder: Path) -> list[CompileTask]:
    script = codegen.write_script(ROOT / "templates", folder, "gemm_tile", PROBLEM, OTHERS, SM_90)
    return [CompileTask(script, c.kernel_symbol, specialization(PROBLEM, c, SM_90), PROBLEM) for c in OTHERS]


def broken_task(folder: Path, *, kernel: str = "pass", calls: str = "pass") -> CompileTask:
    text = BROKEN.format(kernel=kernel, calls=calls, pid_file=str(folder / "pid"))
    script = Script("broken", text_sha(text), text_sha(text))
    (folder / script.file).write_text(text, encoding="utf-8")
    return CompileTask(script, "broken", "s", PROBLEM)


def pool_in(folder: Path, cache: Path | None = None, *, workers: int = 2, limit_s: float = LONG_S) -> CompilePool:
    return CompilePool(
        LANGUAGE, SM_90, workers, cache or folder / "cache", folder / "log.txt", folder, limit_s, kind="gemm"
    )


def run(pool: CompilePool, tasks: list[CompileTask]) -> dict[str, CompileResult]:
    """All answers by name; every task is answered once."""
    with pool:
        answers = list(pool.run(tasks))
    assert sorted(task.name for task, _ in answers) == sorted(task.name for task in tasks)
    assert all(result.name == task.name for task, result in answers)
    return {result.name: result for _, result in answers}


def failed_alone(results: dict[str, CompileResult]) -> CompileResult:
    """The broken script's result, after checking that all others compiled."""
    assert all(results[c.kernel_symbol].status == Status.OK for c in OTHERS), results
    return results["broken"]


def until(there: Path, answers: Future[Any]) -> None:
    """Waits for a file, which must be whole as soon as it is there, while the pool is at work."""
    while not there.exists():
        assert not answers.done(), answers.result()
        time.sleep(0.01)

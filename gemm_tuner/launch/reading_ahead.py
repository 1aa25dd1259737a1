"""Reads kernels from Triton's cache into a launcher that waits, so that its first calls take no longer than others."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from types import ModuleType

from gemm_tuner.core.records import Problem
from gemm_tuner.core.workload import FIRST_KIND, workload_of
from gemm_tuner.languages.triton.blank import Blank
from gemm_tuner.languages.triton.cached_compile import only_from_cache
from gemm_tuner.launch.loading import loads_when_called
from gemm_tuner.launch.plan import SCREEN, VERIFY, Plan
from gemm_tuner.launch.verify import sizes_of_check


def read_ahead(plan: Plan, scripts: list[ModuleType], stop: Callable[[], bool] = lambda: False) -> None:
    """Reads what the entries of a plan of finals or checks launch, without using the GPU, which another launcher may be
    timing on. Only of GEMMs, whose host code is this package's own. What is not in the cache, or fails here, the stage
    meets again, and reports.

    stop: whether to end; asked before each entry.
    """
    if plan.device == "cpu" or plan.stage == SCREEN:  # which launches many once, and may end early
        return
    for work in plan.work:
        for index, name in work.entries if work.problem.kind == FIRST_KIND else ():
            if stop():
                return
            script = scripts[index]
            if loads_when_called(script):
                continue
            checked = sizes_of_check(work, script, name, interpreted=False) if plan.stage == VERIFY else (work.problem,)
            for problem in checked:
                with contextlib.suppress(Exception), only_from_cache():
                    read(script, name, problem)


def read(script: ModuleType, name: str, problem: Problem) -> None:
    """Reads the kernels of one call. Raises what Triton raises."""
    for _, kernel, grid, arguments, options in workload_of(problem.kind).compile_calls(
        script, script.CONFIGS[name], problem, Blank
    ):
        if hasattr(kernel, "warmup"):  # else of another language
            kernel.warmup(*arguments, grid=grid, **options)

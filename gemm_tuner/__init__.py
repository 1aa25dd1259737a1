"""A batch GEMM tuner: sizes in, tuned and checked kernel configurations out.

``import gemm_tuner as gt`` gives the names of ``__all__``, which tune functions and kernels of yours from Python; each
is loaded when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from gemm_tuner.surface.aiter import benchmark_config, get_search_space, save_configs_to_json, tune_kernel
    from gemm_tuner.surface.auto_tuner import AutoTuner
    from gemm_tuner.surface.autotune import autotune
    from gemm_tuner.surface.autotune_result import AutotuneResult
    from gemm_tuner.surface.benchmark import benchmark
    from gemm_tuner.surface.buckets import tune_and_save_configs
    from gemm_tuner.surface.callables import Callables, callables
    from gemm_tuner.surface.compiled_file import load_compiled, read_compiled, save_compiled
    from gemm_tuner.surface.install import install
    from gemm_tuner.surface.kernel_run import KernelRun, kernel
    from gemm_tuner.surface.par_compile import Compiled, par_compile
    from gemm_tuner.surface.profile_args import CompileArgs
    from gemm_tuner.surface.records import Call, Check, Effort, NoBestKernel, Row, Tuned
    from gemm_tuner.surface.supply import TensorSupplyType, set_autotune_inputs
    from gemm_tuner.surface.tuner import tune_callables

__all__ = [
    "AutoTuner",
    "AutotuneResult",
    "Call",
    "Callables",
    "Check",
    "CompileArgs",
    "Compiled",
    "Effort",
    "KernelRun",
    "NoBestKernel",
    "Row",
    "TensorSupplyType",
    "Tuned",
    "autotune",
    "benchmark",
    "benchmark_config",
    "callables",
    "get_search_space",
    "install",
    "kernel",
    "load_compiled",
    "par_compile",
    "read_compiled",
    "save_compiled",
    "save_configs_to_json",
    "set_autotune_inputs",
    "tune_and_save_configs",
    "tune_callables",
    "tune_kernel",
]

_MODULE_OF = {
    "AutoTuner": "auto_tuner",
    "AutotuneResult": "autotune_result",
    "Call": "records",
    "Callables": "callables",
    "Check": "records",
    "CompileArgs": "profile_args",
    "Compiled": "par_compile",
    "Effort": "records",
    "KernelRun": "kernel_run",
    "NoBestKernel": "records",
    "Row": "records",
    "TensorSupplyType": "supply",
    "Tuned": "records",
    "autotune": "autotune",
    "benchmark": "benchmark",
    "benchmark_config": "aiter",
    "callables": "callables",
    "get_search_space": "aiter",
    "install": "install",
    "kernel": "kernel_run",
    "load_compiled": "compiled_file",
    "par_compile": "par_compile",
    "read_compiled": "compiled_file",
    "save_compiled": "compiled_file",
    "save_configs_to_json": "aiter",
    "set_autotune_inputs": "supply",
    "tune_and_save_configs": "buckets",
    "tune_callables": "tuner",
    "tune_kernel": "aiter",
}


def __getattr__(name: str) -> Any:
    """PEP 562: loads what is used, so that ``import gemm_tuner`` brings neither torch nor triton."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"gemm_tuner.surface.{_MODULE_OF[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])

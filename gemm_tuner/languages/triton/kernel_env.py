"""The environment variables that compiling and launching must agree on: they are in Triton's cache key."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

# Set in a person's shell, these would change or replace the kernels of a run.
FOREIGN_VARIABLES = ("TRITON_INTERPRET", "TRITON_ALWAYS_COMPILE")

# Variables that change code or times begin with one of these, or are one of these (docs/tuning.md has the list).
COUNTING_PREFIXES = (
    *("TRITON_", "LLVM_", "MLIR_", "AMDGCN_", "AMD_", "CUDA_", "NVIDIA_", "CUBLAS_", "CUBLASLT_", "HIP_", "HIPBLASLT_"),
    *("HSA_", "ROC", "TORCH_", "PYTORCH_"),
)
COUNTING_NAMES = (
    *("DISABLE_LLVM_OPT", "DISABLE_PTXAS_OPT", "PTXAS_OPTIONS", "DISABLE_MMA_V3", "DISABLE_MMA_V5", "USE_IR_LOC", "CC"),
    *("GPU_MAX_HW_QUEUES", "NVPTX_ENABLE_DUMP"),
    *("LD_LIBRARY_PATH", "LD_PRELOAD"),  # which cuBLAS is loaded
)
# Which GPUs are seen, folders of caches and dumps, and what is logged, do neither.
NOT_COUNTING = (
    *("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"),
    *("CUDA_DEVICE_ORDER", "CUDA_CACHE_PATH", "CUDA_CACHE_MAXSIZE", "CUDA_CACHE_DISABLE", "TRITON_HOME"),
    *("TRITON_DUMP_DIR", "TORCH_HOME", "TORCH_EXTENSIONS_DIR", "PYTORCH_KERNEL_CACHE_PATH"),
    *("TORCH_LOGS", "TORCH_SHOW_CPP_STACKTRACES", "NVIDIA_DRIVER_CAPABILITIES"),
)


def counting_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables of an environment that change compiled code or measured times. Those that the tuner itself sets or
    removes for its workers and launchers do not count."""
    own = {*FOREIGN_VARIABLES, *kernel_env(Path()), *NOT_COUNTING}
    return {
        name: value
        for name, value in sorted(environ.items())
        if name not in own and (name in COUNTING_NAMES or name.startswith(COUNTING_PREFIXES))
    }


def kernel_env(cache_dir: Path) -> dict[str, str]:
    """Variables for compile workers and for the launcher process alike.

    TRITON_DEFAULT_FP_FUSION is said outright because its default changes in Triton 3.10.
    TRITON_STORE_BINARY_ONLY makes the cache 6 to 10 times smaller.
    """
    return {
        "TRITON_CACHE_DIR": str(cache_dir),
        "TRITON_DEFAULT_FP_FUSION": "1",
        "TRITON_STORE_BINARY_ONLY": "1",
        "LC_ALL": "C.UTF-8",
    }

"""The environment variables that must be equal when kernels are compiled and launched: they are in Triton's cache
key."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

# Removed from the user's environment, because they would change or replace the kernels of a run.
FOREIGN_VARIABLES = ("TRITON_INTERPRET", "TRITON_ALWAYS_COMPILE")

# Prefixes and names of variables that change code or times (docs/tuning.md has the list).
COUNTING_PREFIXES = (
    *("TRITON_", "LLVM_", "MLIR_", "AMDGCN_", "AMD_", "CUDA_", "NVIDIA_", "CUBLAS_", "CUBLASLT_", "HIP_", "HIPBLASLT_"),
    *("HSA_", "ROC", "TORCH_", "PYTORCH_"),
)
COUNTING_NAMES = (
    *("DISABLE_LLVM_OPT", "DISABLE_PTXAS_OPT", "PTXAS_OPTIONS", "DISABLE_MMA_V3", "DISABLE_MMA_V5", "USE_IR_LOC", "CC"),
    *("GPU_MAX_HW_QUEUES", "NVPTX_ENABLE_DUMP"),
    *("LD_LIBRARY_PATH", "LD_PRELOAD"),  # decide which cuBLAS is loaded
)
# Exceptions, which change neither: the visible GPUs, folders of caches and dumps, logging.
NOT_COUNTING = (
    *("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"),
    *("CUDA_DEVICE_ORDER", "CUDA_CACHE_PATH", "CUDA_CACHE_MAXSIZE", "CUDA_CACHE_DISABLE", "TRITON_HOME"),
    *("TRITON_DUMP_DIR", "TORCH_HOME", "TORCH_EXTENSIONS_DIR", "PYTORCH_KERNEL_CACHE_PATH"),
    *("TORCH_LOGS", "TORCH_SHOW_CPP_STACKTRACES", "NVIDIA_DRIVER_CAPABILITIES"),
)

# Of those that count, the ones that change compiled code on any machine; drivers and libraries are its own matter.
CODE_PREFIXES = ("TRITON_", "LLVM_", "MLIR_", "AMDGCN_")
CODE_NAMES = (
    *("DISABLE_LLVM_OPT", "DISABLE_PTXAS_OPT", "PTXAS_OPTIONS", "DISABLE_MMA_V3", "DISABLE_MMA_V5", "USE_IR_LOC"),
    "NVPTX_ENABLE_DUMP",
)
# Where a machine has its own libraries.
PLACES = ("TRITON_LIBCUDA_PATH", "TRITON_LIBHIP_PATH", "TRITON_CUPTI_LIB_PATH", "TRITON_CUPTI_LIB_BLACKWELL_PATH")


def counting_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables of an environment that change compiled code or measured times, without those that the tuner sets or
    removes for its workers and launchers."""
    own = {*FOREIGN_VARIABLES, *kernel_env(Path()), *NOT_COUNTING}
    return {
        name: value
        for name, value in sorted(environ.items())
        if name not in own and (name in COUNTING_NAMES or name.startswith(COUNTING_PREFIXES))
    }


def code_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables of an environment that change compiled code, wherever it is compiled."""
    return {
        name: value
        for name, value in counting_variables(environ).items()
        if name not in PLACES and (name in CODE_NAMES or name.startswith(CODE_PREFIXES))
    }


def kernel_env(cache_dir: Path) -> dict[str, str]:
    """Environment variables of compile workers and launchers.

    TRITON_DEFAULT_FP_FUSION is set explicitly because its default changes in Triton 3.10. TRITON_STORE_BINARY_ONLY
    makes the cache 6 to 10 times smaller.
    """
    return {
        "TRITON_CACHE_DIR": str(cache_dir),
        "TRITON_DEFAULT_FP_FUSION": "1",
        "TRITON_STORE_BINARY_ONLY": "1",
        "LC_ALL": "C.UTF-8",
    }

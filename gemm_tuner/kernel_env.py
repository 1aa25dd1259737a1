"""The environment variables that compiling and launching must agree on: they are in Triton's cache key."""

from __future__ import annotations

import os
from pathlib import Path

# Set in a person's shell, these would change or replace the kernels of a run.
FOREIGN_VARIABLES = ("TRITON_INTERPRET", "TRITON_ALWAYS_COMPILE")


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


def launcher_env(cache_dir: Path, extra: dict[str, str]) -> dict[str, str]:
    """The whole environment of a launcher process: this one's, less what would change its kernels."""
    inherited = {k: v for k, v in os.environ.items() if k not in FOREIGN_VARIABLES}
    package_root = str(Path(__file__).resolve().parent.parent)
    paths = [package_root, *filter(None, [inherited.get("PYTHONPATH", "")])]
    return {**inherited, **kernel_env(cache_dir), "PYTHONPATH": os.pathsep.join(paths), **extra}

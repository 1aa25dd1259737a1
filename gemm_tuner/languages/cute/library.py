"""Stores compiled kernels in the cache, and loads them for launching through TVM-FFI, without the DSL."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from gemm_tuner.core.errors import EnvironmentFault

CACHE_VARIABLE = "GEMM_TUNER_CUTE_CACHE"
# An environment variable: the path of a runtime library to use instead of that of the installed DSL.
RUNTIME_VARIABLE = "GEMM_TUNER_CUTE_RUNTIME"
RUNTIME = "libcute_dsl_runtime.so"
RUNTIME_FOLDERS = ("cu13/lib", "cu12/lib", "lib")
LIBRARY, NEEDS = "kernel.so", "kernel.json"
FILES = (NEEDS, LIBRARY)  # in this order: the last one makes the entry a hit
ENTRY = re.compile("[0-9a-f]{64}")
# C that is linked into each library. Where one is unloaded, the DSL has it unload its kernels from the GPU by this
# function of the runtime: at the process's end, which frees them anyway, by a call that ends the import of nsys 2023.4.
STAYS_LOADED = """__attribute__((visibility("hidden"))) void cuda_dialect_unload_library_once(void) {}
"""
# In a clone, whose environment has the tuner's package only where that was installed.
HINT = "make tune EXTRAS=cute or pip install '.[cute]'"


def put(cache: Path, entry: str, files: Iterable[tuple[str, bytes]]) -> None:
    """Writes an entry; other processes can load it at any time. Raises OSError."""
    folder = cache / entry
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as part:
        for name, content in files:
            (Path(part) / name).write_bytes(content)
            (Path(part) / name).replace(folder / name)


def load(path: Path, name: str) -> Callable[..., Any]:
    """The function that launches a kernel with torch tensors on torch's stream. Raises EnvironmentFault."""
    provide_runtime()
    os.environ.setdefault("TVM_FFI_DISABLE_TORCH_C_DLPACK", "1")  # prevents compiling what torch already has
    try:
        import tvm_ffi
    except ImportError as error:
        raise EnvironmentFault("kernels of CuTe DSL are launched through apache-tvm-ffi", hint=HINT) from error
    function: Callable[..., Any] = tvm_ffi.load_module(str(path))[name]
    return function


@lru_cache(maxsize=1)
def provide_runtime() -> None:
    """Loads the DSL's runtime library, which kernels' libraries call. Raises EnvironmentFault."""
    found = next(candidates(), None)
    if found is None:
        raise EnvironmentFault(f"there is no {RUNTIME}", hint=f"{HINT}, or name the file in {RUNTIME_VARIABLE}")
    try:
        ctypes.CDLL(str(found), mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise EnvironmentFault(f"the runtime library cannot be loaded: {error}", where=str(found)) from error


def candidates() -> Iterator[Path]:
    """Possible paths of the runtime library, without importing anything."""
    asked = os.environ.get(RUNTIME_VARIABLE)
    if asked:
        yield Path(asked)
        return
    spec = importlib.util.find_spec("nvidia_cutlass_dsl")
    for root in spec.submodule_search_locations or () if spec else ():
        yield from (path for folder in RUNTIME_FOLDERS if (path := Path(root, folder, RUNTIME)).is_file())

"""Compiles kernels with the DSL, in a compile worker. Besides ``warm_up`` the only module that imports the DSL."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

from gemm_tuner.languages import elf
from gemm_tuner.languages.cute.library import STAYS_LOADED
from gemm_tuner.languages.cute.source import Source, symbol_of
from gemm_tuner.languages.triton.binary import nvidia_resources
from gemm_tuner.system.documents import write_text_atomically

# The suffix a enables the architecture-specific matrix instructions.
ARCHITECTURES = {"sm_90": "sm_90a", "sm_100": "sm_100a", "sm_103": "sm_103a", "sm_120": "sm_120a"}
# What the GEMMs of the library lie in; it imports most of what the DSL has.
GEMMS = "quack.gemm_default_epi"
LINK_SECONDS = 60
# CUlaunchConfig in the DSL's host code; the third field is the size of dynamic shared memory in bytes.
LAUNCH_CONFIG = r"!llvm\.struct<\(array<3 x i32>, array<3 x i32>, i64, ptr, ptr, i32\)>"
SHARED_STORE = re.compile(
    rf"(%\w+) = llvm\.getelementptr %\w+\[0, 2\] : [^\n]*{LAUNCH_CONFIG}\s+llvm\.store (%\w+), \1 : i64"
)


@dataclass(frozen=True, slots=True)
class Needs:
    """The resources of a compiled kernel. name: of the source. registers: per thread. spills: bytes of stack.
    shared_bytes: per block. code_hash: over machine code and host code, without the kernel's name."""

    name: str
    registers: int
    spills: int
    shared_bytes: int
    code_hash: str

    def dumps(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def loads(cls, text: bytes) -> Needs:
        return cls(**json.loads(text))


def is_there() -> bool:
    """Whether the DSL can be imported, without importing it."""
    return bool(place())


def place() -> str:
    """The file of the DSL that this process would import; empty where there is none."""
    found = importlib.util.find_spec("cutlass")
    return str(found.origin) if found else ""


def prepare(arch: str) -> None:
    """Imports the DSL for one architecture, and the library of kernels, which needs torch, so that the time and memory
    for this do not count for a kernel."""
    os.environ["CUTE_DSL_ARCH"] = ARCHITECTURES.get(arch, arch)
    os.environ["QUACK_ARCH"] = arch.removeprefix("sm_")  # the library quack would otherwise query a GPU
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    importlib.import_module("cutlass.cute")
    if importlib.util.find_spec("quack") is not None:
        with functions_as_they_are(importlib.import_module("torch")), contextlib.suppress(ImportError):
            importlib.import_module(GEMMS)  # in another version it may lie elsewhere


@contextlib.contextmanager
def functions_as_they_are(torch: ModuleType) -> Iterator[None]:
    """While the block runs, ``torch.compile`` and ``torch.compiler.disable`` return the function that they are given.

    The library decorates functions for tensors at its import, which no compile worker calls. torch would import its own
    compilers for that, which takes as long as everything else together. The library also looks whether torch.compile
    has a recompile_limit.
    """

    def unchanged(function: Any = None, *_: Any, recompile_limit: int = 0, **__: Any) -> Any:
        return function if function is not None else lambda given: given

    before = torch.compile, torch.compiler.disable
    torch.compile, torch.compiler.disable = unchanged, unchanged  # type: ignore[attr-defined]
    try:
        yield
    finally:
        torch.compile, torch.compiler.disable = before  # type: ignore[attr-defined]


def build(source: Source, folder: str, cuobjdump: str) -> tuple[bytes, Needs]:
    """Returns (shared library that launches the kernel through TVM-FFI, the kernel's resources).

    folder: where the source's module is written, because the DSL reads functions from files.

    The builder returns (function, arguments, kernel): function and arguments are passed to ``cute.compile``; kernel is
    the launched function with the decorator ``@cute.kernel``, which is renamed to the source's name.
    Raises ValueError if more than one kernel is launched, and what the builder and the compiler raise.
    """
    import cutlass.cute as cute

    values = {name: as_tuple(value) for name, value in json.loads(source.values).items()}
    function, arguments, kernel = getattr(module_of(source.text, folder), source.builder)(**values)
    kernel.set_name_prefix(source.name, remove_cutlass_symbol=True, keep_mangled_name=False)
    # Code that could be called in this process is not made: it would take a tenth of a second, and no GPU is here.
    compiled = cute.compile(function, *arguments, options="--enable-tvm-ffi", no_jit_engine=True)
    names = list(compiled.kernel_info)
    if names != [symbol_of(source.name)]:
        raise ValueError(f"the function launches {', '.join(names) or 'nothing'}, and has to launch the one kernel")
    with tempfile.TemporaryDirectory() as built:
        path = Path(built, "kernel.o")
        compiled.export_to_c(str(path), function_name=source.name)
        needs = needs_of(source.name, path.read_bytes(), str(compiled.ir_module), cuobjdump)
        return link(path), needs


def as_tuple(value: Any) -> Any:
    """Converts lists from JSON to tuples, as the DSL requires."""
    return tuple(map(as_tuple, value)) if isinstance(value, list) else value


@lru_cache(maxsize=64)
def module_of(text: str, folder: str) -> ModuleType:
    """Imports the text as a module from a file."""
    name = f"cute_{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    path = Path(folder, f"{name}.py")
    write_text_atomically(path, text)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def needs_of(name: str, image: bytes, ir: str, cuobjdump: str) -> Needs:
    """The resources of a kernel from an object file that contains a cubin. Raises ValueError without a cubin."""
    cubin = elf.inner(image, elf.MACHINE_CUDA)
    found = nvidia_resources(cubin, cuobjdump)
    shared = elf.static_shared_bytes(cubin) + dynamic_shared_bytes(ir)
    digest = hashlib.sha256(f"{shared} bytes shared".encode())
    digest.update(elf.code_of(cubin) + elf.instructions_of(image))
    return Needs(name, found.registers, found.spills, shared, digest.hexdigest())


def dynamic_shared_bytes(ir: str) -> int:
    """The dynamic shared memory of the launch, from the text of the compiled host code. Raises ValueError if it is not
    a constant."""
    store = SHARED_STORE.search(ir)
    value = store and re.findall(rf"{store[2]} = llvm\.mlir\.constant\((\d+) : i64\)", ir[: store.start()])
    if not value:
        raise ValueError("the shared memory of the launch is no constant of the host code")
    return int(value[-1])


def link(path: Path) -> bytes:
    """Links an object file, and STAYS_LOADED, to a shared library; ``library`` loads those that it depends on."""
    built, stays = path.with_suffix(".so"), path.with_name("stays.o")
    stays.write_bytes(stays_loaded())
    run_cc("-shared", "-s", "-o", str(built), str(path), str(stays))
    return built.read_bytes()


@lru_cache(maxsize=1)
def stays_loaded() -> bytes:
    """STAYS_LOADED as an object file."""
    with tempfile.TemporaryDirectory() as folder:
        source, built = Path(folder, "stays.c"), Path(folder, "stays.o")
        source.write_text(STAYS_LOADED, encoding="ascii")
        run_cc("-O1", "-fPIC", "-c", "-o", str(built), str(source))
        return built.read_bytes()


def run_cc(*arguments: str) -> None:
    """Raises CalledProcessError, TimeoutExpired or OSError."""
    command = [*shlex.split(os.environ.get("CC") or "cc"), *arguments]
    subprocess.run(command, capture_output=True, timeout=LINK_SECONDS, check=True)

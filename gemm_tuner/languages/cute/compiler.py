"""Compiles kernels with the DSL, in a worker: the only module that imports it."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

from gemm_tuner.languages import elf
from gemm_tuner.languages.cute.source import Source, symbol_of
from gemm_tuner.languages.triton.binary import nvidia_resources
from gemm_tuner.system.documents import write_text_atomically

# Matrix instructions are those of the architecture alone, which the suffix asks for.
ARCHITECTURES = {"sm_90": "sm_90a", "sm_100": "sm_100a", "sm_103": "sm_103a", "sm_120": "sm_120a"}
LINK_SECONDS = 60
# CUlaunchConfig, as the DSL's host code fills it in: the third field is the bytes of dynamic shared memory.
LAUNCH_CONFIG = r"!llvm\.struct<\(array<3 x i32>, array<3 x i32>, i64, ptr, ptr, i32\)>"
SHARED_STORE = re.compile(
    rf"(%\w+) = llvm\.getelementptr %\w+\[0, 2\] : [^\n]*{LAUNCH_CONFIG}\s+llvm\.store (%\w+), \1 : i64"
)


@dataclass(frozen=True, slots=True)
class Needs:
    """name: of the source. registers: of a thread. spills: bytes of stack. shared_bytes: of a block. code_hash: over
    machine code and host code, without the kernel's name."""

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
    """Whether the DSL can be imported; imports nothing."""
    return importlib.util.find_spec("cutlass") is not None


def prepare(arch: str) -> None:
    """Imports the DSL for one architecture, and torch where a library of kernels needs it: that takes seconds and
    memory, which are no kernel's."""
    os.environ["CUTE_DSL_ARCH"] = ARCHITECTURES.get(arch, arch)
    os.environ["QUACK_ARCH"] = arch.removeprefix("sm_")  # of a library of kernels that asks the GPU otherwise
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    importlib.import_module("cutlass.cute")
    if importlib.util.find_spec("quack") is not None:
        importlib.import_module("torch")


def build(source: Source, folder: str, cuobjdump: str) -> tuple[bytes, Needs]:
    """(shared library that launches the kernel through TVM-FFI, what the kernel needs).

    folder: where the source's module is written; the DSL reads functions from files.

    The builder returns (function, arguments, kernel): what ``cute.compile`` gets, and the function under
    ``@cute.kernel`` that is launched, which is given the source's name.
    Raises ValueError when more than that one kernel is launched, and what the builder and the compiler raise.
    """
    import cutlass.cute as cute

    values = {name: as_tuple(value) for name, value in json.loads(source.values).items()}
    function, arguments, kernel = getattr(module_of(source.text, folder), source.builder)(**values)
    kernel.set_name_prefix(source.name, remove_cutlass_symbol=True, keep_mangled_name=False)
    compiled = cute.compile(function, *arguments, options="--enable-tvm-ffi")
    names = list(compiled.kernel_info)
    if names != [symbol_of(source.name)]:
        raise ValueError(f"the function launches {', '.join(names) or 'nothing'}, and has to launch the one kernel")
    with tempfile.TemporaryDirectory() as built:
        path = Path(built, "kernel.o")
        compiled.export_to_c(str(path), function_name=source.name)
        needs = needs_of(source.name, path.read_bytes(), str(compiled.ir_module), cuobjdump)
        return link(path), needs


def as_tuple(value: Any) -> Any:
    """JSON has lists where the DSL wants tuples."""
    return tuple(map(as_tuple, value)) if isinstance(value, list) else value


@lru_cache(maxsize=64)
def module_of(text: str, folder: str) -> ModuleType:
    """The text as the module of a file."""
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
    """Of an object file with the cubin inside. Raises ValueError for one without."""
    cubin = elf.inner(image, elf.MACHINE_CUDA)
    found = nvidia_resources(cubin, cuobjdump)
    shared = elf.static_shared_bytes(cubin) + dynamic_shared_bytes(ir)
    digest = hashlib.sha256(f"{shared} bytes shared".encode())
    digest.update(elf.code_of(cubin) + elf.instructions_of(image))
    return Needs(name, found.registers, found.spills, shared, digest.hexdigest())


def dynamic_shared_bytes(ir: str) -> int:
    """Of the launch, from the compiled host code as text. Raises ValueError when it is no constant of the code."""
    store = SHARED_STORE.search(ir)
    value = store and re.findall(rf"{store[2]} = llvm\.mlir\.constant\((\d+) : i64\)", ir[: store.start()])
    if not value:
        raise ValueError("the shared memory of the launch is no constant of the host code")
    return int(value[-1])


def link(path: Path) -> bytes:
    """A shared library of an object file. The libraries that it calls are loaded before it, by ``library``."""
    built = path.with_suffix(".so")
    command = [*shlex.split(os.environ.get("CC") or "cc"), "-shared", "-s", "-o", str(built), str(path)]
    subprocess.run(command, capture_output=True, timeout=LINK_SECONDS, check=True)
    return built.read_bytes()

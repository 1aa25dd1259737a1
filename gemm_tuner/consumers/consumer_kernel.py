"""``--kernel_from``: extracts a server's own kernel from its source text, without importing the server.

The kernel function is extracted together with the constants and @triton.jit functions of the same file that it uses.
They become part of a generated script, as a separate kernel family.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from gemm_tuner.core.choice import ServedChoice
from gemm_tuner.core.errors import UserError
from gemm_tuner.core.records import Config
from gemm_tuner.gemm.config import KERNEL_FAMILIES, tile
from gemm_tuner.kernels.taken import functions_of, is_jit, text_of, used_by
from gemm_tuner.system.input_files import printable, read_text

FAMILIES = tuple(KERNEL_FAMILIES.values())
# The names of the kernel function by server, newest first.
FUNCTIONS = {
    "vllm": ("_w8a8_triton_block_scaled_mm", "_w8a8_block_fp8_matmul"),
    "sglang": ("_w8a8_block_fp8_matmul",),
}
# Files below site-packages, one for each known version; if none exists, the package is searched.
PLACES = {
    "vllm": ("vllm/model_executor/layers/quantization/utils/fp8_utils.py",),
    "sglang": (
        "sglang/kernels/ops/gemm/fp8_kernel.py",
        "sglang/kernels/ops/quantization/fp8_kernel.py",
        "sglang/srt/layers/quantization/fp8_kernel.py",
    ),
}
# The arguments that templates/block_fp8.py.j2 passes by name: tensors, sizes and strides, constants.
ARGUMENTS = (
    *("A", "B", "C", "As", "Bs", "M", "N", "K", "group_n", "group_k"),
    *("stride_am", "stride_ak", "stride_bk", "stride_bn", "stride_cm", "stride_cn"),
    *("stride_As_m", "stride_As_k", "stride_Bs_k", "stride_Bs_n"),
)
CONSTANTS = ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "GROUP_SIZE_M")
OPTIONAL_CONSTANTS = ("needs_masking",)  # only in some versions; passed if the kernel has it
MAX_BYTES = 8 * 2**20
WITHOUT = "without --kernel_from gemm_tile stands in for it"


@dataclass(frozen=True, slots=True)
class ConsumerKernel:
    """The extracted kernel of a server.

    file:      name of the source file.
    helpers:   source of the constants and functions that it uses.
    text:      source of its function from ``def`` on, with NAME as an additional first argument.
    arguments: its original arguments, in order.
    sha:       12 hex digits over the extracted source as it is in the file.
    """

    consumer: str
    file: str
    helpers: str
    text: str
    arguments: tuple[str, ...]
    sha: str

    @property
    def family(self) -> str:
        return KERNEL_FAMILIES[self.consumer]

    @property
    def function(self) -> str:
        return self.text.removeprefix("def ").partition("(")[0]

    @property
    def label(self) -> str:
        """The kernel's name in a results file."""
        return f"{self.file} sha256:{self.sha}"


def measured(one: ServedChoice) -> Config:
    """The configuration as it was launched: with the family of the server's own kernel if --kernel_from gave it."""
    family = KERNEL_FAMILIES.get(one.consumer) if one.kernel else None
    return replace(tile(one.config), family=family) if family else one.config


def read_all(given: Mapping[str, Path]) -> dict[str, ConsumerKernel]:
    """The kernels of several servers, each from a file or a folder. Raises UserError."""
    return {consumer: read(consumer, path) for consumer, path in given.items()}


def read(consumer: str, path: Path) -> ConsumerKernel:
    """Extracts a server's kernel from a .py file or the folder of an installed package. Raises UserError if the
    server's kernel is not a Triton kernel, is not found, or has unknown arguments."""
    if consumer not in FUNCTIONS:
        accepted = f"a file or folder of {' or '.join(FUNCTIONS)}"
        raise UserError(f"the kernels of {consumer} cannot be taken", where="--kernel_from", accepted=accepted)
    file = find(consumer, path) if path.is_dir() else path
    source = read_text(file, f"kernel of {consumer}", "Python", MAX_BYTES)
    try:
        module = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise UserError(f"is no Python source: {error}", where=printable(file), accepted="a .py file") from None
    known = functions_of(module)
    name = next((one for one in FUNCTIONS[consumer] if one in known), None)
    if name is None:
        raise no_kernel(consumer, file)
    kernel = known[name]
    if not is_jit(kernel, with_options=False):
        accepted = "@triton.jit and nothing else"
        raise UserError(f"{name} is decorated in another way", where=printable(file), accepted=accepted)
    check_arguments(kernel, file)
    used = used_by(kernel, module, file, WITHOUT)
    taken = [ast.get_source_segment(source, node) or "" for node in (*used, kernel)]
    sha = hashlib.sha256("\n".join(taken).encode()).hexdigest()[:12]
    arguments = tuple(one.arg for one in kernel.args.args)
    return ConsumerKernel(consumer, file.name, "\n\n".join(map(ast.unparse, used)), text_of(kernel), arguments, sha)


def find(consumer: str, folder: Path) -> Path:
    """The file that contains a server's kernel. folder: that of the package, or site-packages. Raises UserError if
    there is none, or if several unknown files contain it."""
    for place in PLACES[consumer]:
        for root in (folder, folder.parent):
            path = root / place
            if path.is_file() and path.is_relative_to(folder) and defines(path, consumer):
                return path
    inside = folder / consumer if (folder / consumer).is_dir() else folder
    found = [path for path in sorted(inside.rglob("*.py")) if defines(path, consumer)]
    if not found:
        raise no_kernel(consumer, folder)
    if len(found) > 1:
        listed = ", ".join(printable(path.relative_to(folder)) for path in found[:3])
        what = f"{len(found)} files have a kernel of {consumer}: {listed}"
        raise UserError(what, where=printable(folder), hint="name the file")
    return found[0]


def defines(path: Path, consumer: str) -> bool:
    """Whether the text of a file contains the definition of a server's kernel."""
    try:
        data = path.read_bytes()
    except OSError:
        return False
    return any(f"def {name}(".encode() in data for name in FUNCTIONS[consumer])


def no_kernel(consumer: str, path: Path) -> UserError:
    accepted = f"source that defines {' or '.join(FUNCTIONS[consumer])}"
    return UserError(f"has no kernel of {consumer} that is known", where=printable(path), accepted=accepted)


def check_arguments(kernel: ast.FunctionDef, file: Path) -> None:
    """Raises UserError unless the kernel's arguments are those that the template passes."""
    args = kernel.args
    where = f"{printable(file)}, {kernel.name}"
    if args.posonlyargs or args.kwonlyargs or args.vararg or args.kwarg or args.defaults:
        raise UserError("has arguments with defaults, or of another kind", where=where, accepted="plain arguments")
    constants = [one.arg for one in args.args if one.annotation and "constexpr" in ast.unparse(one.annotation)]
    arguments = [one.arg for one in args.args if one.arg not in constants]
    missing = [name for name in ARGUMENTS if name not in arguments] + [n for n in CONSTANTS if n not in constants]
    unknown = [name for name in arguments if name not in ARGUMENTS]
    unknown += [name for name in constants if name not in (*CONSTANTS, *OPTIONAL_CONSTANTS)]
    if missing or unknown:
        parts = [f"{word} {', '.join(names)}" for word, names in (("lacks", missing), ("has", unknown)) if names]
        raise UserError(
            f"is of a version that cannot be launched: it {' and '.join(parts)}",
            where=where,
            accepted=f"{', '.join(ARGUMENTS)}; constexpr {', '.join(CONSTANTS)}; or also {OPTIONAL_CONSTANTS[0]}",
            hint=WITHOUT,
        )

"""``compile`` makes what the DSL makes of a function: an object file with a cubin inside, and host code for TVM-FFI.

The host code returns the sum of the integers that it is called with, taken by the runtime library's ``stand_in_add``.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from gemm_tuner.languages.triton.binary import cuobjdump_path

PTXAS = Path(cuobjdump_path()).with_name("ptxas-blackwell")
HOST = """
typedef struct { int type, padding; long long value; } Any;
extern long long stand_in_add(long long, long long);
static const unsigned char cubin[] __attribute__((used)) = {%s};
int __tvm_ffi_%s(void *self, const Any *given, int count, Any *result) {
    long long sum = 0;
    for (int at = 0; at < count; ++at) sum = stand_in_add(sum, given[at].value);
    *result = (Any){1, 0, sum};
    return 0;
}
"""
CONFIG = "!llvm.struct<(array<3 x i32>, array<3 x i32>, i64, ptr, ptr, i32)>"
IR = f"""
    %20 = llvm.mlir.constant(7 : i64) : i64
  }}
    %20 = llvm.mlir.constant(SHARED : i64) : i64
    %325 = llvm.getelementptr %320[0, 1, 2] : (!llvm.ptr) -> !llvm.ptr, {CONFIG}
    llvm.store %26, %325 : i32, !llvm.ptr
    %326 = llvm.getelementptr %320[0, 2] : (!llvm.ptr) -> !llvm.ptr, {CONFIG}
    llvm.store %20, %326 : i64, !llvm.ptr
"""
PTX = """.version 8.6
.target {arch}
.address_size 64
.visible .entry {name}(.param .u64 p) {{
.shared .align 4 .b8 kept[{static}];
.reg .u32 %r<{loads}>;
.reg .u64 %p;
ld.param.u64 %p, [p];
{body}
ret;
}}
"""
LAUNCHED: list[tuple[str, dict[str, int]]] = []


def kernel(function: Callable[..., Any]) -> Any:
    """Calling it is its launch; ``function`` returns the bytes of shared memory, static and dynamic, and how many
    values a thread holds."""

    def launch(*arguments: Any) -> None:
        LAUNCHED.append((f"{launch.prefix}_{len(LAUNCHED)}", function(*arguments)))

    def set_name_prefix(name: str, *, remove_cutlass_symbol: bool, keep_mangled_name: bool) -> None:
        assert remove_cutlass_symbol and not keep_mangled_name
        launch.prefix = name

    launch.prefix = "mangled"
    launch.set_name_prefix = set_name_prefix
    return launch


def sym_int(divisibility: int = 1) -> int:
    return -divisibility


def compile(function: Callable[..., None], *arguments: Any, options: str, no_jit_engine: bool = False) -> Any:
    assert options == "--enable-tvm-ffi"
    LAUNCHED.clear()
    function(*arguments)
    (name, needs), *_ = LAUNCHED
    return SimpleNamespace(
        kernel_info={launched: {} for launched, _ in LAUNCHED},
        ir_module=IR.replace("SHARED", str(needs["dynamic"])) if needs["dynamic"] >= 0 else "",
        export_to_c=lambda path, function_name: export(path, function_name, name, needs),
    )


def export(path: str, function_name: str, name: str, needs: dict[str, int]) -> None:
    held = range(1, needs["values"] + 1)
    lines = [f"ld.volatile.global.u32 %r{at}, [%p+{4 * at}];" for at in held]
    lines += ["st.volatile.shared.u32 [kept], %r1;"]
    lines += [f"st.volatile.global.u32 [%p+{4 * at}], %r{at};" for at in held]
    arch = os.environ["CUTE_DSL_ARCH"]
    text = PTX.format(name=name, body="\n".join(lines), arch=arch, loads=len(held) + 1, static=needs["static"])
    with tempfile.TemporaryDirectory() as folder:
        ptx, cubin, c = (Path(folder, f"kernel.{kind}") for kind in ("ptx", "cubin", "c"))
        ptx.write_text(text)
        subprocess.run([PTXAS, f"-arch={arch}", ptx, "-o", cubin], check=True)
        c.write_text(HOST % (",".join(map(str, cubin.read_bytes())), function_name))
        subprocess.run(["cc", "-c", "-fPIC", "-O1", c, "-o", path], check=True)

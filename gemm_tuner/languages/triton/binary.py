"""Registers and spills of a compiled kernel, read from its machine code; needs no GPU and no CUDA toolkit."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

CUOBJDUMP_SECONDS = 120


@dataclass(frozen=True, slots=True)
class Resources:
    """registers: per thread (AMD: vector and accumulation registers together).
    spills: bytes of stack (NVIDIA) or number of spilled registers (AMD); 0 means none."""

    registers: int
    spills: int


def nvidia_resources(cubin: bytes, cuobjdump: str) -> Resources:
    """Resources from ``cuobjdump -res-usage`` (part of the Triton package), which prints ``REG:n STACK:n SHARED:n``.

    Triton's kernels use the stack for spills only. Raises ValueError if the output has no such line.
    """
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        done = subprocess.run(
            [cuobjdump, "-res-usage", file.name], capture_output=True, text=True, timeout=CUOBJDUMP_SECONDS
        )
    found = re.search(r"REG:(\d+) STACK:(\d+)", done.stdout)
    if found is None:
        raise ValueError(f"cuobjdump printed no REG line: {(done.stdout + done.stderr)[:300]}")
    return Resources(int(found[1]), int(found[2]))


def amd_resources(hsaco: bytes) -> Resources:
    """Resources from the code object's metadata note, a MessagePack map: LLVM AMDGPU backend guide, "Code Object V5
    Metadata". On gfx90a and later .vgpr_count counts the unified file, .agpr_count its part.

    Raises ValueError if a field is missing.
    """
    return Resources(_note_integer(hsaco, ".vgpr_count"), _note_integer(hsaco, ".vgpr_spill_count"))


def _note_integer(note: bytes, key: str) -> int:
    """The unsigned integer after a key in MessagePack: a fixint, or 0xcc/0xcd/0xce and 1/2/4 bytes."""
    name = bytes([0xA0 | len(key)]) + key.encode()
    at = note.find(name)
    if at < 0:
        raise ValueError(f"the code object's metadata has no {key}")
    value = note[at + len(name) : at + len(name) + 5]
    if value and value[0] < 0x80:
        return value[0]
    width = {0xCC: 1, 0xCD: 2, 0xCE: 4}.get(value[0] if value else 0)
    if width is None or len(value) <= width:
        raise ValueError(f"{key} in the code object's metadata is no unsigned integer")
    return int.from_bytes(value[1 : 1 + width], "big")


def cuobjdump_path() -> str:
    """The path of cuobjdump in the installed Triton, without importing Triton. Raises ModuleNotFoundError without
    it."""
    spec = importlib.util.find_spec("triton")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("cuobjdump is part of Triton, which is not installed")
    return str(Path(spec.origin).parent / "backends" / "nvidia" / "bin" / "cuobjdump")

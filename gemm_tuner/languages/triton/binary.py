"""What a compiled kernel needs of the GPU, read from its machine code; no GPU, no toolkit."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

CUOBJDUMP_SECONDS = 30


@dataclass(frozen=True, slots=True)
class Resources:
    """registers: of one thread (AMD: vector and accumulation registers together).
    spills: bytes of stack (NVIDIA) or spilled registers (AMD); 0 means none."""

    registers: int
    spills: int


def nvidia_resources(cubin: bytes, cuobjdump: str) -> Resources:
    """From ``cuobjdump -res-usage`` (it ships inside Triton), which prints ``REG:n STACK:n SHARED:n``.

    Stack is used for nothing but spills by Triton's kernels. Raises ValueError when there is no such line.
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
    """From the code object's metadata note, a MessagePack map: LLVM AMDGPU backend guide, "Code Object V5
    Metadata". On gfx90a and later .vgpr_count counts the unified file, .agpr_count its part.

    Raises ValueError when a field is absent.
    """
    return Resources(_note_integer(hsaco, ".vgpr_count"), _note_integer(hsaco, ".vgpr_spill_count"))


def _note_integer(note: bytes, key: str) -> int:
    """The unsigned integer behind a key in MessagePack: fixint, or 0xcc/0xcd/0xce and 1/2/4 bytes."""
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
    """The cuobjdump inside the installed Triton, which is not imported. Raises ModuleNotFoundError without one."""
    spec = importlib.util.find_spec("triton")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("cuobjdump is part of Triton, which is not installed")
    return str(Path(spec.origin).parent / "backends" / "nvidia" / "bin" / "cuobjdump")

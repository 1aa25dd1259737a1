"""Reads machine code from ELF files: cubins, AMD code objects, shared libraries."""

from __future__ import annotations

import struct
from collections.abc import Iterator

NO_CONTENTS = 8  # SHT_NOBITS
MAGIC = b"\x7fELF\x02\x01"
MACHINE_CUDA = 190
SHARED_SECTION, RESERVED_SECTION = ".nv.shared.", ".nv.shared.reserved."
# From sm_90 on, a kernel's shared memory section includes this much that the system reserves; it does not count
# against the limit of a block.
RESERVED_SHARED_BYTES = 1024
# Sections that determine what a kernel does: instructions, constants, and AMD's kernel descriptor (in .rodata).
CODE_SECTIONS = (".text", ".rodata", ".nv.constant", ".nv.global")


def code_of(image: bytes) -> bytes:
    """The instructions and constants of a 64-bit little-endian ELF file, without the kernel's name and debug
    information.

    Raises ValueError if the file has no instructions.
    """
    found = [(name, body) for name, body in _sections(image) if name.startswith(CODE_SECTIONS)]
    if not any(name.startswith(".text") and body for name, body in found):
        raise ValueError("the file holds no machine code")
    kinds = [next(kind for kind in CODE_SECTIONS if name.startswith(kind)) for name, _ in found]
    return b"".join(f"{kind} {len(body)}\0".encode() + body for kind, (_, body) in zip(kinds, found, strict=True))


def instructions_of(image: bytes) -> bytes:
    """Only the instructions of an unlinked object file, whose addresses of constants are not resolved yet."""
    return b"".join(body for name, body in _sections(image) if name.startswith(".text"))


def inner(image: bytes, machine: int) -> bytes:
    """``image`` from the start of the embedded ELF file for ``machine`` on. Raises ValueError if there is none."""
    at = image.find(MAGIC)
    while at >= 0:
        if image[at + 0x12 : at + 0x14] == struct.pack("<H", machine):
            return image[at:]
        at = image.find(MAGIC, at + 1)
    raise ValueError("the file holds no machine code of the GPU")


def static_shared_bytes(cubin: bytes) -> int:
    """Static shared memory of the kernels of a cubin for sm_90 or later, without the system's reserved part."""
    return sum(
        max(0, length - RESERVED_SHARED_BYTES)
        for name, _, length in _headers(cubin)
        if name.startswith(SHARED_SECTION) and not name.startswith(RESERVED_SECTION)
    )


def _sections(image: bytes) -> Iterator[tuple[str, bytes]]:
    """(name, contents) of the sections of an ELF file that have contents."""
    for name, offset, length in _headers(image):
        if offset:
            yield name, image[offset : offset + length]


def _headers(image: bytes) -> Iterator[tuple[str, int, int]]:
    """(name, offset, length) of the sections of an ELF file; the offset is 0 for sections without contents. Format:
    elf(5), Elf64_Ehdr and Elf64_Shdr."""
    if image[:6] != MAGIC:
        raise ValueError("the file is no 64-bit little-endian ELF file")
    try:
        (table,) = struct.unpack_from("<Q", image, 0x28)
        size, count, names_at = struct.unpack_from("<HHH", image, 0x3A)
        headers = [struct.unpack_from("<IIQQQQ", image, table + index * size) for index in range(count)]
        names = headers[names_at][4]
        for name, kind, _, _, offset, length in headers:
            end = image.index(b"\0", names + name)
            yield image[names + name : end].decode(), 0 if kind == NO_CONTENTS else offset, length
    except (struct.error, IndexError) as error:
        raise ValueError(f"the ELF file is cut short: {error}") from error

"""Machine code in ELF files: cubins, AMD's code objects, shared libraries."""

from __future__ import annotations

import struct
from collections.abc import Iterator

NO_CONTENTS = 8  # SHT_NOBITS
# Sections that a kernel runs with: instructions, constants, and AMD's kernel descriptor (in .rodata).
CODE_SECTIONS = (".text", ".rodata", ".nv.constant", ".nv.global")


def code_of(image: bytes) -> bytes:
    """The instructions and constants of a 64-bit little-endian ELF file, without the kernel's name and what a
    debugger reads.

    Raises ValueError when there are no instructions.
    """
    found = [(name, body) for name, body in _sections(image) if name.startswith(CODE_SECTIONS)]
    if not any(name.startswith(".text") and body for name, body in found):
        raise ValueError("the file holds no machine code")
    kinds = [next(kind for kind in CODE_SECTIONS if name.startswith(kind)) for name, _ in found]
    return b"".join(f"{kind} {len(body)}\0".encode() + body for kind, (_, body) in zip(kinds, found, strict=True))


def _sections(image: bytes) -> Iterator[tuple[str, bytes]]:
    """(name, contents) of an ELF file's sections that have contents: elf(5), Elf64_Ehdr and Elf64_Shdr."""
    if image[:6] != b"\x7fELF\x02\x01":
        raise ValueError("the file is no 64-bit little-endian ELF file")
    try:
        (table,) = struct.unpack_from("<Q", image, 0x28)
        size, count, names_at = struct.unpack_from("<HHH", image, 0x3A)
        headers = [struct.unpack_from("<IIQQQQ", image, table + index * size) for index in range(count)]
        names = headers[names_at][4]
        for name, kind, _, _, offset, length in headers:
            if kind != NO_CONTENTS:
                end = image.index(b"\0", names + name)
                yield image[names + name : end].decode(), image[offset : offset + length]
    except (struct.error, IndexError) as error:
        raise ValueError(f"the ELF file is cut short: {error}") from error

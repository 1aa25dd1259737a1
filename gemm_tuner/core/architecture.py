"""Hardware facts of a GPU architecture, and the known architecture that is closest to an unknown one."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

MATRIX_KINDS = ("none", "mma", "wgmma", "tcgen05", "mfma", "wmma")
FP8_KINDS = ("none", "ocp", "fnuz")
# Architectures that CUDA gave another name: from the name that they have now to the former one, by which they are near
# their relatives. CUDA 13.0 renamed sm_101.
FORMER_NAMES = {"sm_110": "sm_101"}


@dataclass(frozen=True, slots=True)
class Architecture:
    """Hardware facts of an architecture, read from its space file. Each fact is independent of the others: sm_120, for
    example, has TMA but no warp-group matrix instructions.

    matrix:   instructions that ``tl.dot`` becomes: ``mma`` (NVIDIA, one warp), ``wgmma`` (Hopper, a warp group),
              ``tcgen05`` (data-center Blackwell, a warp group), ``mfma`` (AMD CDNA), ``wmma`` (AMD RDNA), or
              ``none`` (a CPU).
    tma:      tensor descriptors can copy tiles between global and shared memory.
    clusters: blocks of a cluster can read each other's shared memory.
    fp8:      8-bit float encoding of the matrix instructions: ``ocp``, ``fnuz``, or ``none``.
    chiplets: number of dies that have their own L2 (AMD: XCDs).
    """

    matrix: str
    tma: bool = False
    clusters: bool = False
    fp8: str = "none"
    chiplets: int = 1

    @property
    def by_warp_groups(self) -> bool:
        """Whether one matrix instruction works for a group of four warps, with operands in shared memory."""
        return self.matrix in ("wgmma", "tcgen05")


def nearest(arch: str, known: Iterable[str]) -> str | None:
    """The known architecture that is closest to ``arch``: itself, else the closest one of its major generation.

    The closest lower one is preferred to a higher one, because its kernels use only instructions that ``arch`` has too.
    Returns None when no known architecture is of that generation, for example sm_75 without another sm_7x.
    """
    known = set(known)
    if arch in known:
        return arch
    asked = _generation(FORMER_NAMES.get(arch, arch))
    relatives = [
        (own[1] > asked[1], abs(own[1] - asked[1]), name)
        for name in known
        if asked is not None and (own := _generation(name)) is not None and own[0] == asked[0]
    ]
    return min(relatives)[2] if relatives else None


def _generation(arch: str) -> tuple[str, int] | None:
    """(major generation, number within it): sm_89 is (sm_8, 9), gfx1101 is (gfx11, 1) and gfx90a is (gfx90, 10)."""
    nvidia = re.fullmatch("sm_([0-9]+)([0-9])[a-z]?", arch)
    if nvidia:
        return f"sm_{nvidia[1]}", int(nvidia[2])
    amd = re.fullmatch("gfx(9[0-9]|[0-9]{2})([0-9a-f]{1,2})", arch)
    return (f"gfx{amd[1]}", int(amd[2], 16)) if amd else None

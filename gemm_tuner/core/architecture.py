"""What an architecture can do, and which known one is nearest to an unknown one."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

MATRIX_KINDS = ("none", "mma", "wgmma", "tcgen05", "mfma", "wmma")
FP8_KINDS = ("none", "ocp", "fnuz")


@dataclass(frozen=True, slots=True)
class Architecture:
    """Facts of an architecture, from its space file. Each is one property: none stands for another.

    matrix:   instructions of ``tl.dot``: ``mma`` (NVIDIA, one warp), ``wgmma`` (Hopper, a warp group), ``tcgen05``
              (data-center Blackwell, a warp group), ``mfma`` (AMD CDNA), ``wmma`` (AMD RDNA), or
              ``none`` (a CPU).
    tma:      copies tiles between memory and shared memory by tensor descriptors.
    clusters: blocks of a cluster read each other's shared memory.
    fp8:      encoding of 8-bit floats that the matrix instructions take: ``ocp``, ``fnuz``, or ``none``.
    chiplets: dies with an L2 of their own (AMD: XCDs).
    """

    matrix: str
    tma: bool = False
    clusters: bool = False
    fp8: str = "none"
    chiplets: int = 1

    @property
    def by_warp_groups(self) -> bool:
        """Whether matrix instructions take operands from shared memory for four warps at once."""
        return self.matrix in ("wgmma", "tcgen05")


def nearest(arch: str, known: Iterable[str]) -> str | None:
    """The relative of an architecture among known ones: itself, else the closest of its major generation.

    Of one generation, the closest lower one is preferred to a higher one: kernels for it are made of instructions that
    the newer one has too. None when the generation is unknown: sm_75 without another sm_7x.
    """
    known = set(known)
    if arch in known:
        return arch
    asked = _generation(arch)
    relatives = [
        (own[1] > asked[1], abs(own[1] - asked[1]), name)
        for name in known
        if asked is not None and (own := _generation(name)) is not None and own[0] == asked[0]
    ]
    return min(relatives)[2] if relatives else None


def _generation(arch: str) -> tuple[str, int] | None:
    """(major generation, place in it): sm_89 is (sm_8, 9), gfx1101 is (gfx11, 1) and gfx90a is (gfx90, 10)."""
    nvidia = re.fullmatch("sm_([0-9]+)([0-9])[a-z]?", arch)
    if nvidia:
        return f"sm_{nvidia[1]}", int(nvidia[2])
    amd = re.fullmatch("gfx(9[0-9]|[0-9]{2})([0-9a-f]{1,2})", arch)
    return (f"gfx{amd[1]}", int(amd[2], 16)) if amd else None

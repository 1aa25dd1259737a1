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


# AMD's names gfx803 and gfx90a have one digit of the major version and one of the minor, gfx1030 has two of the major.
FIRST_OF_TWO_DIGITS = 20


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


def plain(arch: str) -> str:
    """NVIDIA's sm_90a and sm_100f without the letter, which Triton adds where it is needed; other names as they are."""
    found = re.fullmatch("(sm_[0-9]+)[af]", arch)
    return found[1] if found else arch


def nearest(arch: str, known: Iterable[str]) -> str | None:
    """The known architecture that is closest to ``arch``: itself, else one of its generation, else one of an earlier.

    A lower one is preferred to a higher one, because its kernels use only instructions that ``arch`` has too. Returns
    None for a name of no known form, and for a generation before all that are known in its maker's line (NVIDIA; CDNA
    with GCN; RDNA), for example sm_75: it lacks instructions of later ones.
    """
    known = set(known)
    if arch in known:
        return arch
    asked = _place(FORMER_NAMES.get(arch, arch))
    if asked is None:
        return None
    places = ((name, _place(name)) for name in known)
    relatives = [
        (*_distance(own, asked), name) for name, own in places if own and own[0] == asked[0] and own[1] <= asked[1]
    ]
    return min(relatives)[2] if relatives else None


Place = tuple[str, int, int]


def _distance(own: Place, asked: Place) -> tuple[int, tuple[bool, int]]:
    """(generations that ``own`` is earlier, within its generation whether it is higher and by how much)."""
    return asked[1] - own[1], (own[2] > asked[2], abs(own[2] - asked[2]))


def _place(arch: str) -> Place | None:
    """(line, generation, number within it): sm_89 is (sm, 8, 9), gfx1101 (rdna, 11, 1) and gfx90a (cdna, 90, 10)."""
    nvidia = re.fullmatch("sm_([0-9]+)([0-9])[af]?", arch)
    if nvidia:
        return "sm", int(nvidia[1]), int(nvidia[2])
    amd = re.fullmatch("gfx(9[0-9]|[0-9]{2})([0-9a-f]{1,2})", arch)
    if amd is None:
        return None
    generation = int(amd[1])
    of_gcn = generation >= FIRST_OF_TWO_DIGITS
    return "cdna" if of_gcn else "rdna", generation, int(amd[2], 16)

"""Tiles of CuTe DSL's families whose parts of C lie together in each way where rows of C start anywhere."""

from __future__ import annotations

# (rows, columns, block of K), and the rest: persistent, swapped, in turns, beside each other, in 8s, one part.
OF_ODD_ROWS: tuple[tuple[tuple[int, int, int], dict[str, int]], ...] = (
    ((128, 256, 64), {"PROGRAMS_PER_SM": 1, "CLUSTER_M": 2}),
    ((256, 128, 64), {"SWAP_AB": 1}),
    ((128, 176, 64), {"PROGRAMS_PER_SM": 1, "PINGPONG": 1}),
    ((128, 176, 64), {"PROGRAMS_PER_SM": 1, "PINGPONG": 1, "SWAP_AB": 1}),
    ((320, 160, 64), {"SWAP_AB": 1}),
    ((256, 152, 64), {"SWAP_AB": 1, "PROGRAMS_PER_SM": 1}),
    ((64, 16, 128), {}),
    ((128, 32, 64), {}),
    ((192, 32, 64), {}),
)

"""For consumers that use the entry of the nearest M: the grid of M, which tuned M may fill a gap, the look-up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gemm_tuner.space.rule import next_power_of_2

# The sizes that vLLM's and SGLang's own tuners write.
GRID = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 256, 512, 1024, 1536, 2048, 3072, 4096)
LEAST_TILE = 16  # rows; tl.dot takes no fewer


def nearest(m: int, keys: Iterable[str]) -> str:
    """The key whose number is nearest to m; of two equally near, the first in the file."""
    return min(keys, key=lambda key: abs(int(key) - m))


def stand_in(m: int, tile_rows: Mapping[int, int]) -> int | None:
    """Which tuned M may serve an M that was not tuned; None when none may.

    tile_rows: BLOCK_SIZE_M by tuned M. A tuned M may serve when its tile has at most m rows, rounded up to a power of
    two and 16, and when it is within a factor of two of m or both fit into one tile. The nearest by ratio is taken, the
    smaller of two equally near.
    """
    able = [
        tuned
        for tuned, rows in tile_rows.items()
        if rows <= most_rows(m) and (max(m, tuned) <= 2 * min(m, tuned) or max(m, tuned) <= rows)
    ]
    return min(able, key=lambda tuned: (max(m, tuned) / min(m, tuned), tuned), default=None)


def most_rows(m: int) -> int:
    """The most rows that the tile of a stand-in for m may have."""
    return max(LEAST_TILE, next_power_of_2(m))

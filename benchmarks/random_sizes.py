"""Prints a size file of sizes drawn from a seed, so that a search can be judged on sizes that it was not made for.

    random_sizes.py SEED COUNT > sizes.yaml
    random_sizes.py SEED 4 --rows unaligned > sizes.yaml

M is 1 to 16384 and N and K are 256 to 32768, uniform in their logarithm; of three sizes in four, all sides are rounded
to a multiple of 8. A, B and C together take at most 1 GiB in bf16. --rows prints the first of one kind: with rows of A
and B that start at multiples of 16 bytes (row-major, 16 bits), or without.
"""

from __future__ import annotations

import argparse
import math
import random
from collections.abc import Iterator
from itertools import islice

MOST_BYTES = 2**30
ROUNDED = 0.75
ELEMENTS = 8  # of 16 bits, in the 16 bytes that aligned rows start at multiples of


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seed", type=int)
    parser.add_argument("count", type=int)
    parser.add_argument("--rows", choices=("all", "aligned", "unaligned"), default="all", help="default: all")
    arguments = parser.parse_args()
    of_rows = "" if arguments.rows == "all" else f" --rows {arguments.rows}"
    print(f"# benchmarks/random_sizes.py {arguments.seed} {arguments.count}{of_rows}")
    for m, n, k in islice(sizes(arguments.seed, arguments.rows), arguments.count):
        print(f"- {{M: {m}, N: {n}, K: {k}}}")


def sizes(seed: int, rows: str) -> Iterator[tuple[int, int, int]]:
    """(M, N, K) of a seed, one after another, of these rows."""
    draw = random.Random(seed)
    while True:
        m, n, k = size(draw)
        kind = "aligned" if n % ELEMENTS == k % ELEMENTS == 0 else "unaligned"
        if rows in ("all", kind):
            yield m, n, k


def size(draw: random.Random) -> tuple[int, int, int]:
    """(M, N, K) within MOST_BYTES."""
    while True:
        m, n, k = (round(math.exp(draw.uniform(math.log(low), math.log(high)))) for low, high in RANGES)
        if draw.random() < ROUNDED:
            m, n, k = (max(8, side // 8 * 8) for side in (m, n, k))
        if 2 * (m * k + k * n + m * n) <= MOST_BYTES:
            return m, n, k


RANGES = ((1, 16384), (256, 32768), (256, 32768))


if __name__ == "__main__":
    main()

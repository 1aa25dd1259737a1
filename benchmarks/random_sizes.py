"""Prints a size file of sizes drawn from a seed, so that a search can be judged on sizes that it was not made for.

    random_sizes.py SEED COUNT > sizes.yaml

M is 1 to 16384 and N and K are 256 to 32768, uniform in their logarithm; of three sizes in four, all sides are rounded
to a multiple of 8. A, B and C together take at most 1 GiB in bf16.
"""

from __future__ import annotations

import argparse
import math
import random

MOST_BYTES = 2**30
ROUNDED = 0.75


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seed", type=int)
    parser.add_argument("count", type=int)
    arguments = parser.parse_args()
    draw = random.Random(arguments.seed)
    print(f"# benchmarks/random_sizes.py {arguments.seed} {arguments.count}")
    for _ in range(arguments.count):
        m, n, k = size(draw)
        print(f"- {{M: {m}, N: {n}, K: {k}}}")


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

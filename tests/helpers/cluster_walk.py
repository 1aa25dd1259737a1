"""The order in which quack's TileScheduler walks over clusters, one after another."""

from __future__ import annotations

from functools import cache


@cache
def walk(first: int, second: int, group: int) -> tuple[tuple[int, int], ...]:
    """(place along the first side, along the second) of each cluster, for a launch of first x second clusters: as
    ``get_raster_order_from_option`` and ``TileScheduler._swizzle_cta`` have it, with the order by heuristics."""

    def rounded(side: int) -> int:
        return -(-side // group) * group

    of_first = rounded(second) > rounded(first)
    fast, slow = (first, second) if of_first else (second, first)
    size = min(group, fast)
    places = []
    for cluster in range(first * second):
        number, within = divmod(cluster, size * slow)
        of_slow, of_fast = divmod(within, size if number < fast // size else fast % size)
        if number % 2 == 1:
            of_slow = slow - 1 - of_slow
        of_fast += number * size
        places.append((of_fast, of_slow) if of_first else (of_slow, of_fast))
    return tuple(places)

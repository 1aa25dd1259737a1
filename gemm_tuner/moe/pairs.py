"""Pairs of configurations, one for each GEMM. Where rows are padded to blocks, which is done once for both GEMMs, both
have the same BLOCK_SIZE_M.

Screening times every configuration for both GEMMs, and the time of a call is nearly the sum of the two kernels' times.
So the best pair combines the fastest kernel of each GEMM. Most of these pairs have never been
launched together; the finals time them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

from gemm_tuner.core.plain_config import PlainConfig
from gemm_tuner.core.records import Config
from gemm_tuner.moe.cute import CUTE_FIELDS
from gemm_tuner.moe.launch import OF_DOWN, SHAPE_FIELDS
from gemm_tuner.moe.launcher import AMD_FIELDS, TMA
from gemm_tuner.moe.own import OWN_FIELDS

MOST = 4  # number of pairs in the finals
EACH = 2  # number of configurations per GEMM and BLOCK_SIZE_M that are combined

Screened = Sequence[tuple[Config, tuple[float, ...]]]


def best(family: str, screened: Screened, *, is_padded: bool = True) -> Iterator[PlainConfig]:
    """The pairs of two different configurations of a family with the smallest sums of kernel times, best first.
    screened: with times of the same work. is_padded: rows are padded to blocks."""
    single = [(one.options(), us) for one, us in screened
              if one.family == family and len(us) == 2 and not _is_pair(one)]  # fmt: skip
    fields = (*(() if is_padded else ("BLOCK_SIZE_M",)), *SHAPE_FIELDS, TMA, *AMD_FIELDS, *OWN_FIELDS, *CUTE_FIELDS)
    found = []
    blocks = [{block_m} for block_m in sorted({options["BLOCK_SIZE_M"] for options, _ in single})]
    for some in blocks if is_padded else [set[int]().union(*blocks)]:
        mine = [(options, us) for options, us in single if options["BLOCK_SIZE_M"] in some]
        ups, downs = (sorted(mine, key=lambda one: (one[1][part], *one[0].values()))[:EACH] for part in (0, 1))
        found += [(up[1][0] + down[1][1], up[0], down[0]) for up, down in product(ups, downs) if up[0] != down[0]]
    found.sort(key=lambda one: (one[0], *one[1].values(), *one[2].values()))
    for _, up, down in found[:MOST]:
        of_down = {OF_DOWN + name: down[name] for name in fields if name in down}
        yield PlainConfig(family, tuple({**up, **of_down}.items()))


def _is_pair(config: Config) -> bool:
    return any(name.startswith(OF_DOWN) for name in config.options())

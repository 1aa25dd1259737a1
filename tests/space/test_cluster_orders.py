"""Which orders of clusters the rules keep, beside the walk of quack's scheduler."""

from __future__ import annotations

import itertools

import pytest
from cluster_walk import walk
from rule_cases import BY_NAME
from samples import columns, config, device

from gemm_tuner.gemm.problem import GemmProblem
from gemm_tuner.space import prune

RULE = BY_NAME["orders_of_clusters"]
SIDES = tuple(itertools.product((1, 2, 3, 4, 5, 7, 8, 9, 12, 16, 17, 31), repeat=2))
PACKED = {"family": "gemm_cute_packed", "PACK_BLOCK": 2048}


def kept_of(numbers: tuple[int, ...], first: int, second: int, arch: str = "sm_90", **changes: object) -> list[int]:
    """The groups that the rule keeps of a space with these, of first x second clusters of 128 x 128, whose operands
    exceed L2."""
    configs = [
        config(**{"family": "gemm_cute", "num_warps": 0, "num_stages": 0, **changes}, GROUP_SIZE_M=number)
        for number in numbers
    ]
    some, swapped = columns(*configs), bool(changes.get("SWAP_AB"))
    m, n = (second, first) if swapped else (first, second)
    rows = prune.apply(some, GemmProblem(128 * m, 128 * n, 2**17), device(arch), (RULE,)).kept
    return [numbers[row] for row in rows]


@pytest.mark.parametrize("swapped", [0, 1])
@pytest.mark.parametrize("numbers", [(1, 2, 4, 8, 16), (1, 8), (4,), (8, 16), (1,)])
def test_each_order_is_kept_once(numbers: tuple[int, ...], swapped: int) -> None:
    """One by one is left out where both sides are long, and there are groups of two."""
    for first, second in SIDES:
        kept = kept_of(numbers, first, second, SWAP_AB=swapped)
        one_by_one = min(first, second) <= 8 or 2 not in numbers
        wanted = {walk(first, second, number) for number in numbers if number > 1 or one_by_one}
        assert {walk(first, second, number) for number in kept} == wanted
        assert len(kept) == len(wanted)


@pytest.mark.parametrize(("arch", "changes"), [("sm_90", PACKED), ("sm_100", {})])
def test_one_by_one_is_left_where_nothing_was_measured(arch: str, changes: dict[str, object]) -> None:
    assert 1 in kept_of((1, 2, 8), 64, 64, arch, **changes)

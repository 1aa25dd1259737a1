"""What users give as configurations, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import triton

from gemm_tuner.core.errors import UserError
from gemm_tuner.surface.configurations import LAUNCH_OPTIONS, candidates

KNOWN = ("block_M", "block_N", "num_stages")
LISTED = [{"block_M": 64, "block_N": 64}, {"block_M": 128, "block_N": 64}]


def of_sizes(m: int, n: int = 0) -> Iterator[dict[str, int]]:
    for block in [128] if min(m, n) >= 1024 else [64, 128]:
        yield {"block_M": block}


def test_lists_generators_functions_of_the_call_and_products() -> None:
    def values(configs: Any, *args: int, **kwargs: int) -> list[Any]:
        return [one.values for one in candidates(configs, KNOWN, args, kwargs)]

    assert values(LISTED) == LISTED
    assert values(one for one in LISTED) == LISTED
    assert values(of_sizes, 512, n=512) == [{"block_M": 64}, {"block_M": 128}]
    assert values(of_sizes, 4096, n=4096) == [{"block_M": 128}]
    assert values(lambda m, n: LISTED, 1, 2) == LISTED
    assert values({"block_M": [64, 128], "block_N": 64}) == LISTED
    assert values([*LISTED, LISTED[0]]) == LISTED, "once each"


def test_triton_configs_bring_their_options_and_hooks() -> None:
    hook = print
    configs = [triton.Config({"BLOCK": 64}, num_warps=2, pre_hook=hook), triton.Config({"BLOCK": 64}, num_warps=2)]
    hooked, plain = candidates(configs, ("BLOCK", *LAUNCH_OPTIONS))
    assert hooked.pre_hook is hook and plain.pre_hook is None
    assert plain.values["num_warps"] == 2 and plain.values["BLOCK"] == 64


def test_a_name_that_is_no_argument_is_refused_with_those_that_are() -> None:
    with pytest.raises(UserError) as raised:
        candidates([{"num_stage": 64}], KNOWN)
    assert "'num_stage'" in raised.value.what
    assert raised.value.accepted == "block_M, block_N, num_stages"
    assert "num_stages" in raised.value.hint


@pytest.mark.parametrize("configs", [[], {}, lambda m, n: [], lambda m, n: iter(())])
def test_nothing_to_tune(configs: Any) -> None:
    with pytest.raises(ValueError, match="No configurations to tune"):
        candidates(configs, KNOWN, (1, 2))


@pytest.mark.parametrize(("configs", "says"), [(7, "7"), ([7], "7"), ("block_M", "block_M"), (lambda m: [], "called")])
def test_what_is_no_list_of_configurations(configs: Any, says: str) -> None:
    with pytest.raises(UserError, match=says):
        candidates(configs, KNOWN, (1, 2))

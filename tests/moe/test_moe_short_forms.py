"""Short forms of fused MoE layers and configurations tell as much as the names that they stand for."""

from __future__ import annotations

from dataclasses import replace

import pytest
from moe_models import kept, layer
from samples import device

from gemm_tuner.core.labels import label, labels
from gemm_tuner.core.plain_config import PlainConfig
from gemm_tuner.moe.launchers import BY_FAMILY
from gemm_tuner.moe.servers import entry
from gemm_tuner.moe.short_forms import short_config
from gemm_tuner.moe.workload import WORKLOAD


@pytest.mark.parametrize(("arch", "server"), [("sm_90", "sglang"), ("gfx942", "vllm")])
def test_no_two_configurations_of_a_space_have_the_same_short_form(arch: str, server: str) -> None:
    (problem,) = layer("qwen3_235b_a22b", arch, server, None, "--m", "64")
    names = [one.name for one in kept(problem, arch)]
    short = {short_config(name) for name in names}
    assert len(short) == len(set(names)) and not short & set(names)
    default = WORKLOAD.default_config(problem, device(arch))
    assert default is not None and short_config(default.name).startswith(f"{server} ")


def test_the_short_form_of_a_configuration() -> None:
    plain = PlainConfig("sglang_moe", (*entry(64, 128, 64, 1, 4, 3).items(), ("USE_TMA", 0)))
    assert short_config(plain.name) == "sglang 64x128x64 gm1 w4 s3"
    pair = replace(plain, values=(*plain.values[:-1], ("USE_TMA", 1), ("down_num_stages", 2), ("down_USE_TMA", 0)))
    assert short_config(pair.name) == "sglang 64x128x64 gm1 w4 s3 tma1 down s2 tma0"
    assert {short_config(replace(plain, family=family).name).split()[0] for family in BY_FAMILY} == {
        "vllm", "sglang", "own", "cute",
    }  # fmt: skip
    for other in ("", "vllm_moe", "vllm_moe_BLOCK_SIZE_M16", "softmax_BLOCK_SIZE_M16_BLOCK_SIZE_N16_BLOCK_SIZE_K16"):
        assert short_config(other) == other


def test_a_layer_is_said_once_of_its_numbers_of_tokens() -> None:
    found = layer("deepseek_v3", "sm_90", "vllm", None, "--m", "1,64")
    assert label(found[0]) == "vllm fp8_w8a8 E=256 N=256 K=7168 top 8 M=1"
    named = labels(found)
    assert (named.common, list(named.of.values())) == ("vllm fp8_w8a8 E=256 N=256 K=7168 top 8", ["M=1", "M=64"])
    both = labels([*found, *(replace(one, server="sglang") for one in found)])
    assert list(both.of.values()) == ["vllm M=1", "vllm M=64", "sglang M=1", "sglang M=64"]

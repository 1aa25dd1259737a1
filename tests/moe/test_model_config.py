"""MoE layers out of config.json files, by attribute names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gemm_tuner.core.errors import UserError
from gemm_tuner.moe.model_config import Layer, read, share

DATA = Path(__file__).resolve().parents[1] / "data" / "moe"
NO_BLOCK = (0, 0)
BF16 = ("bf16", "bf16", "none", NO_BLOCK)
LAYERS = {
    "deepseek_v3": Layer(256, 2048, 7168, 8, "fp8_w8a8", "bf16", "block", (128, 128), "silu", bias=False),
    "qwen3_235b_a22b": Layer(128, 1536, 4096, 8, *BF16, "silu", bias=False),
    "mixtral_8x7b": Layer(8, 14336, 4096, 2, *BF16, "silu", bias=False),
    "llama4_maverick": Layer(128, 8192, 5120, 1, *BF16, "silu", bias=False),
}


def config(folder: Path, **changes: Any) -> Path:
    """Mixtral's with other attributes; None takes one away."""
    row = {**json.loads((DATA / "mixtral_8x7b.json").read_text()), **changes}
    path = folder / "config.json"
    path.write_text(json.dumps({key: value for key, value in row.items() if value is not None}))
    return path


@pytest.mark.parametrize("model", LAYERS)
def test_layers_are_found_by_attribute_names(model: str) -> None:
    assert read(DATA / f"{model}.json") == LAYERS[model]


def test_a_type_that_no_kernel_has_waits_for_another_to_be_named() -> None:
    layer = read(DATA / "gpt_oss_120b.json")
    assert (layer.E, layer.N, layer.K, layer.topk, layer.activation) == (128, 2880, 2880, 4, "swigluoai")
    assert layer.dtype == "" and "mxfp4" in layer.reason


def test_a_clamp_is_of_interleaved_columns_only_without_shared_experts(tmp_path: Path) -> None:
    """gpt-oss and DeepSeek-V4 both say silu and a limit, and neither says that gpt-oss' experts have biases."""
    for changes, expected in (
        ({"swiglu_limit": 7.0}, ("swigluoai", True)),
        ({"swiglu_limit": 7.0, "mlp_bias": False}, ("swigluoai", False)),
        ({"swiglu_limit": 10.0, "n_shared_experts": 1}, ("silu", False)),
    ):
        layer = read(config(tmp_path, **changes))
        assert (layer.activation, layer.bias) == expected


def test_the_layer_is_found_however_deep_it_lies(tmp_path: Path) -> None:
    inner = json.loads((DATA / "mixtral_8x7b.json").read_text())
    dtype = inner.pop("torch_dtype")
    for nested in ({"text_config": inner}, {"thinker_config": {"text_config": inner}}):
        path = tmp_path / "config.json"
        path.write_text(json.dumps({**nested, "dtype": dtype, "hidden_size": 1, "vision_config": {"hidden_size": 9}}))
        assert read(path) == LAYERS["mixtral_8x7b"]


def test_an_mlp_without_a_gate_and_a_latent_size_are_told_by_their_attributes(tmp_path: Path) -> None:
    """As of Nemotron 3: Nano has no latent size, Super's experts work in 1024 of 4096 columns."""
    row = {"model_type": "nemotron_h", "hidden_size": 2688, "intermediate_size": 1856, "moe_intermediate_size": 1856,
           "n_routed_experts": 128, "num_experts_per_tok": 6, "mlp_hidden_act": "relu2", "mamba_hidden_act": "silu",
           "moe_latent_size": None, "torch_dtype": "bfloat16"}  # fmt: skip
    path = tmp_path / "config.json"
    path.write_text(json.dumps(row))
    assert read(path) == Layer(128, 1856, 2688, 6, *BF16, "relu2_no_mul", bias=False)
    path.write_text(json.dumps({**row, "hidden_size": 4096, "moe_latent_size": 1024}))
    assert read(path).K == 1024
    path.write_text(json.dumps({**row, "mlp_hidden_act": "sine"}))
    with pytest.raises(UserError, match="sine"):
        read(path)
    assert read(config(tmp_path, hidden_act="relu2")).activation == "relu2"


def test_numbers_of_each_layer_are_one_where_they_are_alike(tmp_path: Path) -> None:
    """As of Hunyuan-A13B."""
    lists = {"num_local_experts": 64, "moe_intermediate_size": [3072] * 32, "moe_topk": [8] * 32}
    layer = read(config(tmp_path, num_experts_per_tok=None, **lists))
    assert (layer.E, layer.N, layer.topk) == (64, 3072, 8)
    for key, several in (("moe_topk", [8, 4]), ("moe_intermediate_size", [])):
        with pytest.raises(UserError, match="whole number"):
            read(config(tmp_path, num_experts_per_tok=None, **{**lists, key: several}))


def test_of_several_layers_with_experts_the_largest_is_taken(tmp_path: Path) -> None:
    """Qwen3-Omni's talker, which has as many experts, lies before its thinker."""
    sizes = {"num_experts": 128, "hidden_act": "silu"}
    talker = {**sizes, "hidden_size": 1024, "moe_intermediate_size": 384, "num_experts_per_tok": 6}
    thinker = {**sizes, "hidden_size": 2048, "moe_intermediate_size": 768, "num_experts_per_tok": 8}
    path = tmp_path / "config.json"
    for names in (("talker", "thinker"), ("thinker", "talker")):
        parts = {"talker": talker, "thinker": thinker}
        nested = {f"{name}_config": {"text_config": parts[name]} for name in names}
        path.write_text(json.dumps({"dtype": "bfloat16", **nested}))
        assert read(path) == Layer(128, 768, 2048, 8, *BF16, "silu", bias=False)


def test_experts_may_be_of_another_type_than_the_other_layers(tmp_path: Path) -> None:
    """DeepSeek-V4's are of 4-bit floats beside fp8, in its Base versions of fp8; the name is in either mapping."""
    fp8 = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    for own, dtype in (("fp4", ""), ("fp8", "fp8_w8a8")):
        beside = config(tmp_path, quantization_config=fp8, expert_dtype=own)
        assert read(beside).dtype == dtype
        inside = read(config(tmp_path, quantization_config={**fp8, "expert_dtype": own}))
        assert inside.dtype == dtype and (dtype or "fp4" in inside.reason)


@pytest.mark.parametrize(
    "of_others", ["re:.*self_attn.*", "re:.*mlp.shared_experts.*", "re:.*layers[.]0[.]mlp[.](gate|up|down)_proj"]
)
@pytest.mark.parametrize("of_experts", ["Linear", "re:.*mlp[.]experts[.].*"])
def test_of_several_groups_that_of_the_experts_is_read(of_others: str, of_experts: str, tmp_path: Path) -> None:
    int4 = {"weights": {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32}, "targets": [of_experts]}
    fp8 = {"weights": {"num_bits": 8, "type": "float", "strategy": "channel"}, "targets": [of_others],
           "input_activations": {"num_bits": 8, "type": "float", "strategy": "token"}}  # fmt: skip
    for groups in ([fp8, int4], [int4, fp8]):
        quantised = {"quant_method": "compressed-tensors", "config_groups": dict(zip("ab", groups, strict=True))}
        assert read(config(tmp_path, quantization_config=quantised)).dtype == "int4_w4a16"


def test_ranks_share_the_intermediate_size_or_the_experts() -> None:
    layer = LAYERS["deepseek_v3"]
    one, other = share(layer, 8, experts=False), share(layer, 8, experts=True)
    assert (one.E, one.N) == (256, 256)
    assert (other.E, other.N) == (32, 2048)
    with pytest.raises(UserError, match="3 ranks"):
        share(layer, 3, experts=False)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"num_local_experts": None}, "no experts"),
        ({"intermediate_size": None}, "lacks moe_intermediate_size"),
        ({"num_experts_per_tok": "two"}, "num_experts_per_tok is 'two'"),
        ({"hidden_act": "sine"}, "activation is 'sine'"),
        ({"torch_dtype": "float64"}, "float64"),
    ],
)
def test_what_a_config_lacks_is_named(tmp_path: Path, changes: dict[str, Any], told: str) -> None:
    with pytest.raises(UserError, match=told):
        read(config(tmp_path, **changes))


@pytest.mark.parametrize(
    ("group", "dtype", "scaling"),
    [
        ({"weights": {"num_bits": 8, "type": "float", "strategy": "channel"},
          "input_activations": {"num_bits": 8, "type": "float", "strategy": "token"}}, "fp8_w8a8", "channel"),
        ({"weights": {"num_bits": 8, "type": "int", "strategy": "channel"}, "input_activations": None},
         "int8_w8a16", "channel"),
        ({"weights": {"num_bits": 4, "type": "int", "strategy": "group"}, "input_activations": None}, "", "none"),
        ({"weights": {"num_bits": 8, "type": "float", "strategy": "block", "block_structure": "128x128"},
          "input_activations": {"num_bits": 8, "type": "float"}}, "", "none"),
        ({"weights": {"num_bits": 8, "type": "int", "strategy": "group", "group_size": 64}}, "int8_w8a16", "group"),
        (5, "", "none"),
    ],
)  # fmt: skip
def test_compressed_tensors_say_types_and_scales(tmp_path: Path, group: Any, dtype: str, scaling: str) -> None:
    quantised = {"quant_method": "compressed-tensors", "config_groups": {"group_0": group}}
    layer = read(config(tmp_path, quantization_config=quantised))
    assert (layer.dtype, layer.scaling) == (dtype, scaling)


@pytest.mark.parametrize(
    ("quantised", "dtype", "group", "zero"),
    [
        ({"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True}, "int4_w4a16", 128, False),
        ({"quant_method": "gptq", "bits": 8, "group_size": 64, "sym": False}, "int8_w8a16", 64, True),
        ({"quant_method": "awq", "bits": 4, "group_size": 64, "zero_point": True}, "int4_w4a16", 64, True),
        ({"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": {
            "num_bits": 4, "type": "int", "strategy": "group", "group_size": 32, "symmetric": True
        }, "input_activations": None}}}, "int4_w4a16", 32, False),
        ({"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True, "desc_act": True}, "", 0, False),
        ({"quant_method": "gptq", "bits": 4, "group_size": -1, "sym": True}, "", 0, False),
        ({"quant_method": "gptq", "bits": 3, "group_size": 128, "sym": True}, "", 0, False),
    ],
)  # fmt: skip
def test_integers_in_groups_say_their_bits_and_zero_points(
    tmp_path: Path, quantised: dict[str, Any], dtype: str, group: int, zero: bool
) -> None:
    layer = read(config(tmp_path, quantization_config=quantised))
    assert (layer.dtype, layer.scaling) == (dtype, "group" if group else "none")
    assert (layer.block_shape, layer.zero_points) == ((0, group), zero)


@pytest.mark.parametrize("block", [[0, 128], [128, -1], [128], "128x128", {"rows": 128}])
def test_a_block_that_is_none_waits_for_another_type_to_be_named(block: Any, tmp_path: Path) -> None:
    layer = read(config(tmp_path, quantization_config={"quant_method": "fp8", "weight_block_size": block}))
    assert layer.dtype == "" and "fp8" in layer.reason

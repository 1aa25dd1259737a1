"""Sizes of the layers of a model, out of its config.json."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from sources_of_sizes import COL, DATA, FEW, sizes_of, written

from gemm_tuner.core.errors import UserError
from gemm_tuner.gemm.size_sources.collect import collect
from gemm_tuner.gemm.size_sources.found import CollectOptions


def layers_of(name: str, asked: CollectOptions) -> dict[str, tuple[int, int, int]]:
    """M, N and K of each layer at the first M; those that share a size under the first's name."""
    sizes = sizes_of(name, asked)
    return {origins[0]: (p.m, p.n, p.k) for p, origins in sizes.problems.items()}


def test_llamas_layers_on_one_rank_and_on_eight() -> None:
    one = CollectOptions(m_values=(16,), lm_head=True)
    assert layers_of("llama_config.json", one) == {
        "qkv": (16, 6144, 4096),
        "o": (16, 4096, 4096),
        "gate_up": (16, 28672, 4096),
        "down": (16, 4096, 14336),
        "lm_head": (16, 128256, 4096),
    }
    assert layers_of("llama_config.json", CollectOptions(m_values=(16,), tp=8)) == {
        "qkv": (16, 768, 4096),
        "o": (16, 4096, 512),
        "gate_up": (16, 3584, 4096),
        "down": (16, 4096, 1792),
    }
    # More ranks than heads of k and v: each rank has one of them.
    assert layers_of("llama_config.json", CollectOptions(m_values=(16,), tp=16))["qkv"] == (16, (2 + 2) * 128, 4096)
    with pytest.raises(UserError, match="32 attention heads cannot be split over 3 ranks"):
        sizes_of("llama_config.json", CollectOptions(tp=3))


def test_deepseeks_layers_are_those_that_vllm_tunes() -> None:
    sizes = sizes_of("deepseek_v3_config.json", CollectOptions(m_values=(64,), tp=8))
    assert layers_of("deepseek_v3_config.json", CollectOptions(m_values=(64,), tp=8)) == {
        "qkv_a": (64, 2112, 7168),
        "q_b": (64, 3072, 1536),
        "kv_b": (64, 4096, 512),
        "o": (64, 7168, 2048),
        "router": (64, 256, 7168),
        "shared_gate_up": (64, 512, 7168),
        "shared_down": (64, 7168, 256),
        "gate_up": (64, 4608, 7168),
        "down": (64, 7168, 2304),
    }
    kinds = {origins[0]: (p.dtype_a, p.scaling, p.layout_b) for p, origins in sizes.problems.items()}
    assert kinds["qkv_a"] == ("fp8_e4m3", "block", COL)
    assert kinds["router"] == ("bf16", "none", COL)
    assert [(r.kept, r.text) for r in sizes.remarks] == [
        (False, "expert_gate_up, 256 experts of N 512 and K 7168"),
        (False, "expert_down, 256 experts of N 7168 and K 256"),
    ]


def test_an_experts_even_share_of_the_tokens_is_rounded_up() -> None:
    sizes = sizes_of("deepseek_v3_config.json", CollectOptions(m_values=(1, 64, 100), tp=8, experts=True))
    shares = [p.m for p, origins in sizes.problems.items() if "expert_down" in origins and p.k == 256]
    # 8 of 256 experts a token: 1/32, 2 and 3.125 rows; the shared expert has the same size at M = 1.
    assert shares == [1, 2, 4]
    assert not sizes.remarks


@pytest.mark.parametrize(("step", "dense"), [(2, {"gate_up": (16, 4096, 5120), "down": (16, 5120, 2048)}), (1, {})])
def test_llama_4_has_a_shared_expert_and_wider_layers_without_experts(
    step: int, dense: dict[str, tuple[int, int, int]], tmp_path: Path
) -> None:
    """Maverick's every other layer has experts, Scout's every one."""
    text = {"model_type": "llama4_text", "hidden_size": 5120, "intermediate_size": 8192, "intermediate_size_mlp": 16384,
            "num_attention_heads": 40, "num_key_value_heads": 8, "head_dim": 128, "num_local_experts": 128,
            "num_experts_per_tok": 1, "interleave_moe_layer_step": step}  # fmt: skip
    path = written(tmp_path, "config.json", json.dumps({"model_type": "llama4", "text_config": text}))
    sizes = collect(path, CollectOptions(m_values=(16,), tp=8, moe=True))
    assert not sizes.remarks
    assert {origins[0]: (p.m, p.n, p.k) for p, origins in sizes.problems.items()} == {
        "qkv": (16, 896, 5120),
        "o": (16, 5120, 640),
        "router": (16, 128, 5120),
        "shared_gate_up": (16, 2048, 5120),
        "shared_down": (16, 5120, 1024),
        **dense,
    }


def test_gpt_oss_has_biases_in_attention_and_router(tmp_path: Path) -> None:
    row = {"model_type": "gpt_oss", "hidden_size": 2880, "intermediate_size": 2880, "num_attention_heads": 64,
           "num_key_value_heads": 8, "head_dim": 64, "attention_bias": True, "num_local_experts": 128,
           "num_experts_per_tok": 4, "quantization_config": {"quant_method": "mxfp4"}}  # fmt: skip
    path = written(tmp_path, "config.json", json.dumps(row))
    sizes = collect(path, CollectOptions(m_values=(16,), dtype="bf16", moe=True))
    assert not sizes.remarks
    assert {origins[0]: (p.n, p.k, p.bias) for p, origins in sizes.problems.items()} == {
        "qkv": (5120, 2880, True),
        "o": (2880, 4096, True),
        "router": (128, 2880, True),
    }


def found_in(folder: Path, row: dict[str, object]) -> dict[str, tuple[int, int]]:
    sizes = collect(written(folder, "config.json", json.dumps(row)), CollectOptions(m_values=(16,), moe=True))
    return {name: (p.n, p.k) for p, origins in sizes.problems.items() for name in origins}


HEADS = {"num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128}


@pytest.mark.parametrize(
    ("names", "shared"),
    [
        ({"num_experts": 64, "moe_topk": [8] * 32, "moe_intermediate_size": [768] * 32, "num_shared_expert": [1] * 32},
         768),  # Hunyuan
        ({"num_experts": 64, "num_experts_per_token": 8, "moe_intermediate_size": 768, "num_shared_experts": 2}, 1536),
        ({"moe_num_experts": 64, "moe_k": 6, "moe_intermediate_size": 768, "moe_num_shared_experts": 2}, 1536),  # Ernie
        ({"num_local_experts": 64, "num_experts_per_tok": 8, "n_shared_experts": 1, "shared_intermediate_size": 3072},
         3072),  # MiniMax
    ],
)  # fmt: skip
def test_shared_experts_are_found_by_all_their_names(names: dict[str, object], shared: int, tmp_path: Path) -> None:
    row = {"model_type": "qwen3_moe", "hidden_size": 4096, "intermediate_size": 2048, **HEADS, **names}
    found = found_in(tmp_path, row)
    assert (found["router"], found["shared_down"]) == ((64, 4096), (4096, shared))
    assert "gate_up" not in found


@pytest.mark.parametrize(
    ("said", "width"),
    [
        ({"first_k_dense_replace": 3}, 2048),
        ({"moe_layer_start_index": 1}, 2048),  # Ernie 4.5
        ({"moe_layers_enum": "3,4,5"}, 2048),  # Step 3.5
        ({"enable_moe_block": True}, 2048),  # Gemma 4
        ({"moe_layer_freq": [0, 1, 1], "dense_intermediate_size": 3072}, 3072),  # MiniMax M3
        ({"moe_layer_freq": [1, 1]}, 0),
        ({"moe_layer_freq": 1, "first_k_dense_replace": 0}, 0),
    ],
)
def test_dense_layers_beside_experts_are_found(said: dict[str, object], width: int, tmp_path: Path) -> None:
    row = {"model_type": "qwen3_moe", "hidden_size": 4096, "intermediate_size": 2048, **HEADS, "num_experts": 64,
           "num_experts_per_tok": 8, "moe_intermediate_size": 768}  # fmt: skip
    assert found_in(tmp_path, {**row, **said}).get("down") == ((4096, width) if width else None)


def test_a_count_of_no_experts_is_a_dense_model(tmp_path: Path) -> None:
    row = {"model_type": "llama", "hidden_size": 4096, "intermediate_size": 2048, **HEADS, "num_local_experts": 0}
    assert "gate_up" in found_in(tmp_path, row) and "router" not in found_in(tmp_path, row)


def test_nemotrons_shared_expert_has_no_gate_and_its_experts_a_space_of_their_own(tmp_path: Path) -> None:
    row = {"model_type": "nemotron_h", "hidden_size": 4096, "intermediate_size": 2688, "moe_intermediate_size": 2688,
           "moe_latent_size": 1024, "moe_shared_expert_intermediate_size": 5376, "n_routed_experts": 512,
           "n_shared_experts": 1, "num_experts_per_tok": 22, "mlp_hidden_act": "relu2", **HEADS}  # fmt: skip
    found = found_in(tmp_path, row)
    assert (found["shared_up"], found["shared_down"]) == ((5376, 4096), (4096, 5376))
    assert (found["latent_in"], found["latent_out"]) == ((1024, 4096), (4096, 1024))
    path = written(tmp_path, "config.json", json.dumps(row))
    (one, other) = (r.text for r in collect(path, CollectOptions(m_values=(16,))).remarks if not r.kept)
    assert "expert_up, 512 experts of N 2688 and K 1024" in one and "N 1024 and K 2688" in other


def config(tmp_path: Path, **changes: object) -> Path:
    values = {**json.loads((DATA / "llama_config.json").read_text()), **changes}
    return written(tmp_path, "config.json", json.dumps(values))


@pytest.mark.parametrize(
    ("quantised", "kind"),
    [
        ({"quant_method": "fp8"}, ("fp8_e4m3", "tensor")),
        ({"quant_method": "fp8", "weight_block_size": None}, ("fp8_e4m3", "tensor")),
        (
            {"quant_method": "compressed-tensors", "config_groups": {"group_0": {
                "weights": {"num_bits": 8, "type": "float", "strategy": "channel"},
                "input_activations": {"num_bits": 8, "type": "float", "strategy": "token"}}}},
            ("fp8_e4m3", "row_col"),
        ),
        (
            {"quant_method": "compressed-tensors", "config_groups": {"group_0": {
                "weights": {"num_bits": 8, "type": "int", "strategy": "channel"},
                "input_activations": {"num_bits": 8, "type": "int", "strategy": "token"}}}},
            ("int8", "row_col"),
        ),
    ],
)  # fmt: skip
def test_quantised_weights(quantised: dict[str, object], kind: tuple[str, str], tmp_path: Path) -> None:
    found = collect(
        config(tmp_path, quantization_config=quantised), CollectOptions(m_values=(1,), lm_head=True)
    ).problems
    assert {(p.dtype_a, p.scaling) for p, names in found.items() if "lm_head" not in names} == {kind}
    assert {(p.dtype_a, p.scaling, p.dtype_c) for p, n in found.items() if "lm_head" in n} == {("bf16", "none", "bf16")}


def test_weights_that_no_kernel_multiplies_are_refused_unless_others_are_asked_for(tmp_path: Path) -> None:
    path = config(tmp_path, quantization_config={"quant_method": "awq"})
    with pytest.raises(UserError, match=r"'awq'.*--dtype"):
        collect(path, FEW)
    asked = CollectOptions(m_values=(1,), dtype="fp8", scaling="row_col", fp8="fp8_e4m3_fnuz")
    assert {(p.dtype_a, p.scaling) for p in collect(path, asked).problems} == {("fp8_e4m3_fnuz", "row_col")}


def test_a_mixture_without_dense_layers_has_none(tmp_path: Path) -> None:
    changes = {"model_type": "qwen3_moe", "num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768}
    sizes = collect(config(tmp_path, **changes), CollectOptions(m_values=(1,)))
    assert [origins[0] for origins in sizes.problems.values()] == ["qkv", "o", "router"]


def test_biases_and_models_that_are_not_known(tmp_path: Path) -> None:
    qwen = collect(config(tmp_path, model_type="qwen2"), CollectOptions(m_values=(1,)))
    assert {names[0]: p.bias for p, names in qwen.problems.items()}["qkv"] and not qwen.remarks
    both = config(tmp_path, attention_bias=True, mlp_bias=True)
    assert all(p.bias for p in collect(both, CollectOptions(m_values=(1,))).problems)
    split = {names[0]: p.bias for p, names in collect(both, CollectOptions(m_values=(1,), tp=2)).problems.items()}
    assert split == {"qkv": True, "o": False, "gate_up": True, "down": False}
    unknown = collect(config(tmp_path, model_type="brandnew"), FEW)
    assert unknown.remarks[0].kept and "'brandnew'" in unknown.remarks[0].text
    plain = collect(config(tmp_path, model_type="starcoder2"), CollectOptions(m_values=(1,)))
    assert {names[0]: p.n for p, names in plain.problems.items()}["up"] == 14336


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"hidden_size": "4096"}, "hidden_size is '4096'"),
        ({"num_attention_heads": None}, "num_attention_heads is nothing"),
        ({"intermediate_size": 10**12}, "intermediate_size is 1000000000000"),
        ({"torch_dtype": "float64"}, "torch_dtype is 'float64'"),
    ],
)
def test_a_config_that_lacks_what_a_layer_is_made_of_is_refused(
    change: dict[str, object], words: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=words):
        collect(config(tmp_path, **change), FEW)


# config.json of openai-community/gpt2 on Hugging Face, less what is about training and tokens.
GPT2 = {
    "activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_ctx": 1024,
    "n_embd": 768, "n_head": 12, "n_layer": 12, "n_positions": 1024, "vocab_size": 50257,
}  # fmt: skip


def test_the_layers_of_gpt_2(tmp_path: Path) -> None:
    sizes = collect(written(tmp_path, "config.json", json.dumps(GPT2)), CollectOptions(m_values=(7,), lm_head=True))
    layers = {names[0]: (p.m, p.n, p.k, p.bias) for p, names in sizes.problems.items()}
    assert layers == {
        "qkv": (7, 3 * 768, 768, True), "o": (7, 768, 768, True), "up": (7, 3072, 768, True),
        "down": (7, 768, 3072, True), "lm_head": (7, 50257, 768, False),
    }  # fmt: skip
    assert not sizes.remarks
    narrow = collect(
        written(tmp_path, "config.json", json.dumps({**GPT2, "n_inner": 1000})), CollectOptions(m_values=(7,))
    )
    assert {names[0]: p.n for p, names in narrow.problems.items()}["up"] == 1000


@pytest.mark.parametrize(
    ("lacking", "words"),
    [
        ({"n_embd", "n_head"}, r"is a config.json, but lacks hidden_size \(n_embd .*num_attention_heads"),
        ({"n_head"}, "lacks num_attention_heads"),
    ],
)
def test_a_models_config_without_its_sizes_names_what_it_lacks(lacking: set[str], words: str, tmp_path: Path) -> None:
    config = {key: value for key, value in GPT2.items() if key not in lacking}
    with pytest.raises(UserError, match=words):
        collect(written(tmp_path, "config.json", json.dumps(config)), FEW)


def test_a_config_that_is_larger_than_any_models_is_refused(tmp_path: Path) -> None:
    text = '{"hidden_size": 1, "x": "' + "y" * 2**24 + '"}'
    with pytest.raises(UserError, match="too large for a model's config"):
        collect(written(tmp_path, "config.json", text), FEW)

"""The linear layers of a transformer as (N, K), by its config.json and the ranks that share each layer.

Attention's and the MLP's first layers are split by columns and their last by rows, as Megatron-LM does and vLLM and
SGLang after it: N / tp, K / tp. q, k and v are one product, and gate and up are. Heads of k and v that are fewer than
the ranks are repeated. DeepSeek's latent attention (MLA) projects down in one product on every rank and up by heads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gemm_tuner.core.errors import UserError
from gemm_tuner.gemm.problem import MAX_DIMENSION
from gemm_tuner.system.documents import show

# The MLP of these has one layer up, not gate and up; that of others is taken to have both.
_NOT_GATED = ("gpt2", "gpt_neox", "phi", "starcoder2", "nemotron")
_QKV_BIAS = ("qwen2", "qwen2_moe", "qwen2_vl", "qwen2_5_vl")
KNOWN = (
    *("llama", "mistral", "mixtral", "qwen2", "qwen2_moe", "qwen2_vl", "qwen2_5_vl", "qwen3", "qwen3_moe", "gemma"),
    *("gemma2", "gemma3", "gemma3_text", "phi3", "deepseek_v2", "deepseek_v3", "kimi_k2", "glm4_moe", *_NOT_GATED),
)
NEEDED = ("hidden_size", "intermediate_size", "num_attention_heads")
# GPT-2's names of the same numbers (transformers, GPT2Config).
_OTHER_NAMES = {"hidden_size": "n_embd", "intermediate_size": "n_inner", "num_attention_heads": "n_head"}
_EXPERT_COUNTS = ("n_routed_experts", "num_experts", "num_local_experts")


@dataclass(frozen=True, slots=True)
class Layer:
    """C[M, n] = A[M, k] @ weight[n, k].T. plain: not quantised. experts, chosen: of a mixture, how many there are, and
    how many a token goes to; 0 for a layer that all tokens go through."""

    name: str
    n: int
    k: int
    bias: bool = False
    plain: bool = False
    experts: int = 0
    chosen: int = 0


def with_usual_names(config: dict[str, Any]) -> dict[str, Any]:
    """A config with the usual names for GPT-2's; its layers all have a bias, and no n_inner is 4 n_embd."""
    named = {usual: config[other] for usual, other in _OTHER_NAMES.items() if config.get(other) is not None}
    if type(config.get("n_embd")) is int:
        named.setdefault("intermediate_size", 4 * config["n_embd"])
    if config.get("model_type") == "gpt2":
        named |= {"attention_bias": True, "mlp_bias": True}
    return {**named, **config}


class Model:
    """A config.json and the ranks; raises UserError for a number that is not there or does not divide."""

    def __init__(self, config: dict[str, Any], tp: int, where: str) -> None:
        self.config, self.tp, self.where = config, tp, where
        self.hidden = self.number("hidden_size")
        self.model_type = str(config.get("model_type", ""))

    def number(self, key: str, default: int | None = None) -> int:
        value = self.config.get(key)
        if value in (None, 0) and default is not None:
            return default
        if type(value) is not int or not 0 < value <= MAX_DIMENSION:
            said = f"{key} is {show(value)}" if key in self.config else f"lacks {key}"
            raise UserError(
                said, where=self.where, accepted="the config.json of a transformer with a whole number there"
            )
        return value

    def share(self, count: int, of: str) -> int:
        """What a rank has of a count that is split evenly."""
        if count % self.tp:
            raise UserError(f"{count} {of} cannot be split over {self.tp} ranks", where="--tp",
                            accepted=f"a divisor of {count}")  # fmt: skip
        return count // self.tp

    def flag(self, key: str) -> bool:
        return self.config.get(key) is True


def of_model(model: Model, *, lm_head: bool) -> list[Layer]:
    """All linear layers, those of different sizes once."""
    layers = _latent_attention(model) if model.config.get("kv_lora_rank") else _attention(model)
    experts = next((model.number(key) for key in _EXPERT_COUNTS if model.config.get(key) is not None), 0)
    if experts:
        layers += _mixture(model, experts)
    dense_too = model.config.get("first_k_dense_replace") or model.config.get("mlp_only_layers")
    if not experts or dense_too or model.number("decoder_sparse_step", 1) > 1:
        layers += _mlp(model, "", model.number("intermediate_size"))
    if lm_head:
        layers.append(Layer("lm_head", -(-model.number("vocab_size") // model.tp), model.hidden, plain=True))
    return layers


def _attention(model: Model) -> list[Layer]:
    heads = model.number("num_attention_heads")
    kv_heads = model.number("num_key_value_heads", heads)
    width = model.number("head_dim", model.hidden // heads)
    mine = model.share(heads, "attention heads")
    mine_kv = 1 if kv_heads < model.tp else model.share(kv_heads, "key and value heads")
    bias = model.flag("attention_bias")
    return [
        Layer("qkv", (mine + 2 * mine_kv) * width, model.hidden, bias=bias or model.model_type in _QKV_BIAS),
        # Split by rows, one rank alone adds the bias, after the sum.
        Layer("o", model.hidden, mine * width, bias=bias and model.tp == 1),
    ]


def _latent_attention(model: Model) -> list[Layer]:
    heads = model.share(model.number("num_attention_heads"), "attention heads")
    nope, rope, value = (model.number(key) for key in ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"))
    latent = model.number("kv_lora_rank")
    query = model.number("q_lora_rank", 0)
    columns = heads * (nope + rope)
    first = (
        [Layer("qkv_a", query + latent + rope, model.hidden), Layer("q_b", columns, query)]
        if query
        else [Layer("q", columns, model.hidden), Layer("kv_a", latent + rope, model.hidden)]
    )
    return [*first, Layer("kv_b", heads * (nope + value), latent), Layer("o", model.hidden, heads * value)]


def _mlp(model: Model, prefix: str, width: int, experts: int = 0, chosen: int = 0) -> list[Layer]:
    """The layers up and down; width: of the inner vector, before it is split."""
    inner = model.share(width, f"{prefix or 'MLP '}columns")
    bias = model.flag("mlp_bias") and not experts
    gated = model.model_type not in _NOT_GATED
    return [
        Layer(
            f"{prefix}{'gate_up' if gated else 'up'}", (1 + gated) * inner, model.hidden, bias, False, experts, chosen
        ),
        Layer(f"{prefix}down", model.hidden, inner, bias and model.tp == 1, False, experts, chosen),
    ]


def _mixture(model: Model, experts: int) -> list[Layer]:
    """The router, what all tokens share, and the experts."""
    width = model.number("moe_intermediate_size", model.number("intermediate_size", 0) or None)
    layers = [Layer("router", experts, model.hidden, plain=True)]
    shared = model.number("shared_expert_intermediate_size", model.number("n_shared_experts", 0) * width)
    if shared:
        layers += _mlp(model, "shared_", shared)
    return layers + _mlp(model, "expert_", width, experts, model.number("num_experts_per_tok"))

"""The linear layers of a transformer as (N, K), from its config.json and the number of tensor-parallel ranks.

As in Megatron-LM, vLLM and SGLang, the first layers of attention and MLP are split by columns (N / tp) and the last by
rows (K / tp). q, k and v are one product, and so are gate and up. If k and v have fewer heads than there are ranks, the
heads are replicated. The down projections of DeepSeek's latent attention (MLA) are one product, replicated on every
rank; the up projections are split by heads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gemm_tuner.core.errors import UserError
from gemm_tuner.gemm.problem import MAX_DIMENSION
from gemm_tuner.gemm.size_sources import expert_names as names
from gemm_tuner.system.documents import show

# Models whose MLP has a single up projection; all others are assumed to have gate and up.
_NOT_GATED = ("gpt2", "gpt_neox", "phi", "starcoder2", "nemotron")
_QKV_BIAS = ("qwen2", "qwen2_moe", "qwen2_vl", "qwen2_5_vl")
_ROUTER_BIAS = ("gpt_oss",)
# Llama 4's width of layers without experts; its intermediate_size is that of an expert and of the shared one.
_DENSE_WIDTH, _MOE_STEP = "intermediate_size_mlp", "interleave_moe_layer_step"
KNOWN = (
    *("llama", "mistral", "mixtral", "qwen2", "qwen2_moe", "qwen2_vl", "qwen2_5_vl", "qwen3", "qwen3_moe", "gemma"),
    *("gemma2", "gemma3", "gemma3_text", "phi3", "deepseek_v2", "deepseek_v3", "kimi_k2", "glm4_moe", "gpt_oss"),
    *("llama4_text", *_NOT_GATED),
)
NEEDED = ("hidden_size", "intermediate_size", "num_attention_heads")
# GPT-2's names for the same numbers (transformers, GPT2Config).
_OTHER_NAMES = {"hidden_size": "n_embd", "intermediate_size": "n_inner", "num_attention_heads": "n_head"}


@dataclass(frozen=True, slots=True)
class Layer:
    """C[M, n] = A[M, k] @ weight[n, k].T. plain: not quantized. experts, chosen: for a mixture of experts, the number
    of experts, and to how many of them a token is routed; 0 for a layer that all tokens pass through."""

    name: str
    n: int
    k: int
    bias: bool = False
    plain: bool = False
    experts: int = 0
    chosen: int = 0


def with_usual_names(config: dict[str, Any]) -> dict[str, Any]:
    """GPT-2's config with the usual names. All its layers have a bias, and a missing n_inner means 4 n_embd."""
    named = {usual: config[other] for usual, other in _OTHER_NAMES.items() if config.get(other) is not None}
    if type(config.get("n_embd")) is int:
        named.setdefault("intermediate_size", 4 * config["n_embd"])
    if config.get("model_type") == "gpt2":
        named |= {"attention_bias": True, "mlp_bias": True}
    return {**named, **config}


class Model:
    """A config.json and the number of ranks; its methods raise UserError for a missing or indivisible number."""

    def __init__(self, config: dict[str, Any], tp: int, where: str) -> None:
        self.config, self.tp, self.where = config, tp, where
        self.hidden = self.number("hidden_size")
        self.model_type = str(config.get("model_type", ""))

    def number(self, key: str, default: int | None = None) -> int:
        value = names.of_layers(self.config.get(key))
        if value in (None, 0) and default is not None:
            return default
        if type(value) is not int or not 0 < value <= MAX_DIMENSION:
            said = f"{key} is {show(value)}" if key in self.config else f"lacks {key}"
            raise UserError(
                said, where=self.where, accepted="the config.json of a transformer with a whole number there"
            )
        return value

    def first(self, keys: tuple[str, ...], default: int | None = None) -> int:
        """The number under the first of the keys that has one."""
        return self.number(next((key for key in keys if self.config.get(key)), keys[0]), default)

    def share(self, count: int, of: str) -> int:
        """One rank's part of a count that is split evenly. of: a noun for the error message."""
        if count % self.tp:
            raise UserError(f"{count} {of} cannot be split over {self.tp} ranks", where="--tp",
                            accepted=f"a divisor of {count}")  # fmt: skip
        return count // self.tp

    def flag(self, key: str) -> bool:
        return self.config.get(key) is True

    @property
    def is_gated(self) -> bool:
        """Whether MLPs have a gate beside their up-projection."""
        without = names.WITHOUT_GATE in self.config and not any(map(self.config.get, names.ACTIVATION))
        return self.model_type not in _NOT_GATED and not without


def of_model(model: Model, *, lm_head: bool) -> list[Layer]:
    """All linear layers; layers of equal size once."""
    layers = _latent_attention(model) if model.config.get("kv_lora_rank") else _attention(model)
    experts = model.first(names.EXPERTS, 0)
    if experts:
        layers += _mixture(model, experts)
    has_zero = 0 in freq if isinstance(freq := model.config.get("moe_layer_freq"), list) else False
    dense_too = has_zero or any(map(model.config.get, names.DENSE_TOO))
    if not experts or dense_too or max(model.number(step, 1) for step in ("decoder_sparse_step", _MOE_STEP)) > 1:
        layers += _mlp(model, "", model.first((_DENSE_WIDTH, "dense_intermediate_size", "intermediate_size")))
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
        # A layer that is split by rows has no bias here: one rank adds it after the sum over ranks.
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


def _mlp(
    model: Model, prefix: str, width: int, experts: int = 0, chosen: int = 0, hidden: int | None = None
) -> list[Layer]:
    """The up and down layers. width: of the inner vector, before it is split. hidden: of the outer one, if it is not
    the model's."""
    inner, outer = model.share(width, f"{prefix or 'MLP '}columns"), hidden or model.hidden
    bias, gated = model.flag("mlp_bias") and not experts, model.is_gated
    return [
        Layer(f"{prefix}{'gate_up' if gated else 'up'}", (1 + gated) * inner, outer, bias, False, experts, chosen),
        Layer(f"{prefix}down", outer, inner, bias and model.tp == 1, False, experts, chosen),
    ]


def _mixture(model: Model, experts: int) -> list[Layer]:
    """The router, the shared experts, the projections into a latent space and back, and the experts."""
    width = model.first(names.INTERMEDIATE)
    layers = [Layer("router", experts, model.hidden, bias=model.model_type in _ROUTER_BIAS, plain=True)]
    count = model.first(names.SHARED, int(_DENSE_WIDTH in model.config))
    shared = model.first(names.SHARED_WIDTH, count * width)
    if shared:
        layers += _mlp(model, "shared_", shared)
    latent = model.number(names.LATENT, 0)
    if latent:  # on every rank
        layers += [Layer("latent_in", latent, model.hidden), Layer("latent_out", model.hidden, latent)]
    return layers + _mlp(model, "expert_", width, experts, model.first(names.TOPK), latent)

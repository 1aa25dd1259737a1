"""Attribute names of a mixture of experts in config.json files, by meaning; the first one that exists is used.

Some files have a list of values under such a name, one of each layer.
"""

from __future__ import annotations

from typing import Any

EXPERTS = ("n_routed_experts", "num_experts", "num_local_experts", "moe_num_experts")
TOPK = ("num_experts_per_tok", "num_experts_per_token", "experts_per_token", "moe_topk", "moe_top_k", "top_k_experts",
        "moe_k")  # fmt: skip
INTERMEDIATE = ("moe_intermediate_size", "expert_intermediate_size", "moe_ffn_hidden_size", "expert_ffn_hidden_size",
                "intermediate_size", "ffn_hidden_size")  # fmt: skip
# Experts behind a projection into fewer columns have a size of their own.
LATENT = "moe_latent_size"
# Experts that all tokens pass through: how many of an expert's width, or the width of all together.
SHARED = ("n_shared_experts", "num_shared_experts", "num_shared_expert", "moe_num_shared_experts")
SHARED_WIDTH = ("shared_expert_intermediate_size", "moe_shared_expert_intermediate_size", "shared_intermediate_size",
                "share_expert_dim")  # fmt: skip
# Where one of these is neither absent nor 0, some layers are dense, or have a dense MLP beside their experts.
DENSE_TOO = ("first_k_dense_replace", "mlp_only_layers", "moe_layer_start_index", "moe_layers_enum", "enable_moe_block")
ACTIVATION = ("hidden_act", "hidden_activation", "activation_function", "ffn_act_fn")
# Of MLPs that are an up- and a down-projection, as Nemotron-H's.
WITHOUT_GATE = "mlp_hidden_act"


def of_layers(value: Any) -> Any:
    """The value of each layer, where a list says it for all and they are alike; else what was given."""
    return value[0] if isinstance(value, list) and value and all(one == value[0] for one in value) else value

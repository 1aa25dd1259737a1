"""In which types a model's linear layers multiply, by its config.json: torch_dtype and quantization_config."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gemm_tuner.core.errors import UserError
from gemm_tuner.gemm.problem import SCALE_BLOCK
from gemm_tuner.gemm.size_sources.found import Asked
from gemm_tuner.system.documents import show

_TORCH = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
_OTHER_WAY = "name types that are to be tuned by --dtype, and --scaling if they have scales"


@dataclass(frozen=True, slots=True)
class Weights:
    """dtype: of A and B of most layers. plain: of the layers that are not quantised, and of C."""

    dtype: str
    scaling: str
    plain: str


def of_config(config: dict[str, Any], asked: Asked, where: str) -> Weights:
    """The types. Raises UserError for weights that no kernel here multiplies, unless others are asked for."""
    named = str(config.get("torch_dtype") or config.get("dtype") or "bfloat16").removeprefix("torch.")
    plain = _TORCH.get(named)
    if plain is None:
        raise UserError(f"torch_dtype is {show(named)}", where=where, accepted=", ".join(_TORCH))
    if asked.dtype:
        dtype = (asked.fp8 or "fp8_e4m3") if asked.dtype == "fp8" else asked.dtype
        return Weights(dtype, asked.scaling or "none", plain)
    quantised = config.get("quantization_config") or config.get("compression_config")
    if not isinstance(quantised, dict):
        return Weights(plain, asked.scaling or "none", plain)
    dtype, scaling = _quantised(quantised, where)
    return Weights((asked.fp8 or "fp8_e4m3") if dtype == "fp8" else dtype, asked.scaling or scaling, plain)


def _quantised(quantised: dict[str, Any], where: str) -> tuple[str, str]:
    """(dtype, scaling) of quantised layers. Raises UserError."""
    method = quantised.get("quant_method")
    if method == "fp8":
        block = quantised.get("weight_block_size")
        if block not in (None, [SCALE_BLOCK, SCALE_BLOCK]):
            what = f"weight_block_size is {show(str(block))}"
            raise UserError(what, where=where, accepted=f"[{SCALE_BLOCK}, {SCALE_BLOCK}], or none", hint=_OTHER_WAY)
        return "fp8", "block" if block else "tensor"
    if method == "compressed-tensors":
        known = _compressed(quantised)
        if known:
            return known
    raise UserError(
        f"its weights are quantised by {show(method)} in a way that no kernel here multiplies",
        where=where,
        accepted="fp8, or compressed-tensors with 8-bit weights and inputs",
        hint=_OTHER_WAY,
    )


def _compressed(quantised: dict[str, Any]) -> tuple[str, str] | None:
    """(dtype, scaling) where the first group has 8-bit weights and inputs, else None."""
    groups = quantised.get("config_groups")
    group = next(iter(groups.values()), None) if isinstance(groups, dict) else None
    weights, inputs = (
        (group.get(key) if isinstance(group, dict) else None) for key in ("weights", "input_activations")
    )
    if not isinstance(weights, dict) or not isinstance(inputs, dict):
        return None
    if weights.get("num_bits") != 8 or inputs.get("num_bits") != 8 or weights.get("type") != inputs.get("type"):
        return None
    dtype = {"float": "fp8", "int": "int8"}.get(str(weights.get("type")))
    ways = (str(weights.get("strategy")), str(inputs.get("strategy")))
    if ways == ("block", "group") and weights.get("block_structure") == [SCALE_BLOCK, SCALE_BLOCK]:
        return ("fp8", "block") if dtype == "fp8" else None
    scaling = {("tensor", "tensor"): "tensor", ("channel", "token"): "row_col"}.get(ways)
    return (dtype, scaling) if dtype and scaling else None

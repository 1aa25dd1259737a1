"""Reads the MoE layers of a model from its config.json by attribute names, independent of the architecture's name."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gemm_tuner.core.errors import UserError
from gemm_tuner.gemm.size_sources.expert_names import (
    ACTIVATION,
    EXPERTS,
    INTERMEDIATE,
    LATENT,
    SHARED,
    TOPK,
    WITHOUT_GATE,
    of_layers,
)
from gemm_tuner.moe.problem import ACTIVATIONS, MAX_DIMENSION, NO_GATE
from gemm_tuner.system.documents import show
from gemm_tuner.system.input_files import printable
from gemm_tuner.system.json_records import load_json

# Attribute names by meaning; the first one that exists is used.
HIDDEN = (LATENT, "hidden_size", "d_model", "n_embd")
DTYPE = ("torch_dtype", "dtype")
QUANTISATION = ("quantization_config", "compression_config")
# A clamp of gate and up: gpt-oss', whose columns are interleaved and whose experts have biases, or with shared experts
# that of DeepSeek-V4's silu.
CLAMP = "swiglu_limit"
BIAS = ("moe_bias", "expert_bias", "mlp_bias")
# The type of experts where it is not that of the other quantised layers, as fp4 of DeepSeek-V4; beside these or inside.
OF_EXPERTS = ("expert_dtype",)
_NAMES_EXPERTS = re.compile("(?<!shared_)expert")
_TORCH = {"bfloat16": "bf16", "float16": "fp16"}
_ACTIVATIONS = {"swish": "silu", "swiglu": "silu", "gelu_pytorch_tanh": "gelu_tanh", "gelu_new": "gelu_tanh"}
OTHER_WAY = "name what is to be tuned by --dtype, and by --block_shape where scales are of blocks"
MAX_DEPTH = 6


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer before it is split over ranks; the fields are those of ``MoeProblem``. N: intermediate size. dtype: of
    weights; "" for an unsupported type, with the ``reason``."""

    E: int
    N: int
    K: int
    topk: int
    dtype: str
    out: str
    scaling: str
    block_shape: tuple[int, int]
    activation: str
    bias: bool
    reason: str = ""
    zero_points: bool = False


def shared_experts(path: Path) -> int:
    """The number of experts of the layer that ``read`` takes that all tokens pass through. Raises UserError."""
    return _whole(_first(_mappings(path), SHARED))


def _mappings(path: Path) -> tuple[Mapping[str, Any], ...]:
    """The mapping of a config.json with the layer's experts, with those around it, outermost first; of several, as of
    models that also speak, that of the most weights. Raises UserError for a file without experts."""
    whole, where = load_json(path, "model's config"), printable(path)
    if not isinstance(whole, dict):
        raise UserError("is no model's config", where=where, accepted="a JSON mapping")
    chain = max((one for one in _nested((whole,)) if _first(one[-1:], EXPERTS) is not None), key=_weights, default=None)
    if chain is None:
        accepted = f"a config.json with one of {', '.join(EXPERTS)}"
        raise UserError("has no experts", where=where, accepted=accepted, hint="dense layers: the subcommand sizes")
    return chain


def read(path: Path, *, activation: str = "", is_typed: bool = False) -> Layer:
    """The MoE layer of a config.json. activation: in place of the file's. is_typed: another type will replace one that
    the file says and that is none of experts. Raises UserError for a file without experts, or with missing sizes."""
    chain, where = _mappings(path), printable(path)
    out = str(_first(chain, DTYPE) or "bfloat16").removeprefix("torch.")
    if out not in _TORCH and is_typed:
        out = "bfloat16"
    if out not in _TORCH:
        raise UserError(f"the type is {show(out)}", where=where, accepted=", ".join(_TORCH), hint=OTHER_WAY)
    without_gate = _first(chain, ACTIVATION) is None and _first(chain, (WITHOUT_GATE,))
    named = f"{without_gate}{NO_GATE}" if without_gate else str(_first(chain, ACTIVATION) or "silu")
    in_pairs = _first(chain, (CLAMP,)) is not None and not _first(chain, SHARED)
    activation = activation or ("swigluoai" if in_pairs else _ACTIVATIONS.get(named, named))
    if activation not in ACTIVATIONS:
        raise UserError(f"the activation is {show(named)}", where=where, accepted=", ".join(ACTIVATIONS),
                        hint="moe --activation names the one that it stands for")  # fmt: skip
    bias = _first(chain, BIAS)
    layer = Layer(
        E=_number(chain, EXPERTS, where),
        N=_number(chain, INTERMEDIATE, where),
        K=_number(chain, HIDDEN, where),
        topk=_number(chain, TOPK, where),
        dtype=_TORCH[out],
        out=_TORCH[out],
        scaling="none",
        block_shape=(0, 0),
        activation=activation,
        bias=in_pairs if bias is None else bool(bias),
    )
    quantised = _first(chain, QUANTISATION)
    if not isinstance(quantised, dict):
        return layer
    own = _first((*chain, quantised), OF_EXPERTS)
    if own in (None, "fp8"):
        return _quantised(layer, quantised)
    return replace(layer, dtype="", reason=f"its experts are of {show(own)}, which no Triton kernel here multiplies")


def _nested(chain: tuple[Mapping[str, Any], ...]) -> Iterator[tuple[Mapping[str, Any], ...]]:
    """Every mapping in the file with its enclosing mappings (outermost first), which come before it."""
    yield chain
    for value in chain[-1].values() if len(chain) < MAX_DEPTH else ():
        if isinstance(value, dict):
            yield from _nested((*chain, value))


def _first(chain: tuple[Mapping[str, Any], ...], names: tuple[str, ...]) -> Any:
    """The value of the first name that exists, in the innermost mapping that has one; None without any."""
    for mapping in reversed(chain):
        for name in names:
            if mapping.get(name) is not None:
                return mapping[name]
    return None


def _weights(chain: tuple[Mapping[str, Any], ...]) -> int:
    """The number of weights of one GEMM of a layer; 0 where a size is missing."""
    return _whole(_first(chain, EXPERTS)) * _whole(_first(chain, INTERMEDIATE)) * _whole(_first(chain, HIDDEN))


def _whole(value: Any) -> int:
    """A size, or that of each layer where all are alike; 0 for what is none."""
    value = of_layers(value)
    return value if type(value) is int and 0 < value <= MAX_DIMENSION else 0


def _number(chain: tuple[Mapping[str, Any], ...], names: tuple[str, ...], where: str) -> int:
    value = _first(chain, names)
    if number := _whole(value):
        return number
    what = f"{names[0]} is {show(value)}" if value is not None else f"lacks {names[0]}"
    raise UserError(what, where=where, accepted=f"a whole number under one of {', '.join(names)}")


def _quantised(layer: Layer, found: Mapping[str, Any]) -> Layer:
    """The layer with the types of its quantized weights."""
    method = found.get("quant_method")
    if method == "fp8":
        given = found.get("weight_block_size")
        if given is None:
            return replace(layer, dtype="fp8_w8a8", scaling="tensor")
        if block := _block(given):
            return replace(layer, dtype="fp8_w8a8", scaling="block", block_shape=block)
    if method in ("gptq", "awq", "moe_wna16") and not found.get("desc_act"):
        # AWQ says whether there are zero points, and GPTQ whether there are none.
        zero = bool(found["zero_point"]) if "zero_point" in found else found.get("sym") is False
        if grouped := _in_groups(layer, found.get("bits", found.get("w_bit")), found.get("group_size"), zero=zero):
            return grouped
    if method == "compressed-tensors":
        groups = found.get("config_groups")
        group: Any = max(groups.values(), key=_aim, default={}) if isinstance(groups, dict) else {}
        parts = [group.get(key) if isinstance(group, dict) else None for key in ("weights", "input_activations")]
        weights, inputs = ({} if not isinstance(one, dict) else one for one in parts)
        if weights.get("num_bits") == 8 and weights.get("type") == inputs.get("type") == "float":
            strategy, shape = str(weights.get("strategy")), _block(weights.get("block_structure"))
            if strategy in ("channel", "tensor"):
                return replace(layer, dtype="fp8_w8a8", scaling=strategy)
            if strategy == "block" and shape:
                return replace(layer, dtype="fp8_w8a8", scaling=strategy, block_shape=shape)
        if weights.get("type") == "int" and not inputs:
            if weights.get("num_bits") == 8 and weights.get("strategy") == "channel":
                return replace(layer, dtype="int8_w8a16", scaling="channel")
            zero = weights.get("symmetric") is False
            size = weights.get("group_size") if weights.get("strategy") == "group" else None
            if grouped := _in_groups(layer, weights.get("num_bits"), size, zero=zero):
                return grouped
    reason = f"its experts are quantised by {show(method)} in a way that no Triton kernel here multiplies"
    return replace(layer, dtype="", reason=reason)


def _aim(group: Any) -> int:
    """How surely a group of compressed-tensors is that of experts: its targets name them, or all linear layers."""
    targets = str(group.get("targets")) if isinstance(group, dict) else ""
    return 2 if _NAMES_EXPERTS.search(targets) else int("Linear" in targets)


def _in_groups(layer: Layer, bits: Any, size: Any, *, zero: bool) -> Layer | None:
    """The layer of integers with a scale for ``size`` columns of a row; None if no kernel has these."""
    dtype = {4: "int4_w4a16", 8: "int8_w8a16"}.get(bits) if type(bits) is int else None
    if dtype is None or type(size) is not int or not 0 < size <= MAX_DIMENSION:
        return None
    return replace(layer, dtype=dtype, scaling="group", block_shape=(0, size), zero_points=zero)


def _block(given: Any) -> tuple[int, int] | None:
    """(rows, columns) of weights that share a scale; None if it is no such pair."""
    if not isinstance(given, list) or len(given) != 2 or not all(type(one) is int and one > 0 for one in given):
        return None
    return given[0], given[1]


def share(layer: Layer, ranks: int, *, experts: bool) -> Layer:
    """One rank's part: of the experts if ``experts``, else of the intermediate size. Raises UserError if it cannot be
    divided evenly."""
    count, what = (layer.E, "experts") if experts else (layer.N, "intermediate elements")
    if count % ranks:
        accepted = f"a divisor of {count}"
        raise UserError(f"{count} {what} cannot be split over {ranks} ranks", where="--tp", accepted=accepted)
    return replace(layer, E=count // ranks) if experts else replace(layer, N=count // ranks)

"""Sizes from a Hugging Face model's config.json: its linear layers with their types, at the requested values of M."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gemm_tuner.core.errors import UserError
from gemm_tuner.gemm.problem import SCALE_BLOCK, GemmProblem
from gemm_tuner.gemm.problem_keys import Defaults, problem_of
from gemm_tuner.gemm.size_sources import layers
from gemm_tuner.gemm.size_sources.found import CollectOptions, Found, Read, Remark
from gemm_tuner.gemm.size_sources.layers import Layer, Model
from gemm_tuner.system.documents import show
from gemm_tuner.system.input_files import printable
from gemm_tuner.system.json_records import parse_json

MAX_CHARS = 16 * 2**20
# A JSON file with any of these keys is taken for a model's config.json.
_MARKS = ("hidden_size", "n_embd", "model_type", "architectures")


def matches(text: str) -> bool:
    return text.lstrip().startswith("{") and any(f'"{key}"' in text for key in _MARKS)


def read(text: str, options: CollectOptions, path: Path) -> Read:
    """The layers of the model. Raises UserError if config.json lacks a required number."""
    where = printable(path)
    if len(text) > MAX_CHARS:
        raise UserError("is too large for a model's config", where=where, accepted=f"up to {MAX_CHARS >> 20} MiB")
    whole = parse_json(text, "model's config", where)
    config = whole.get("text_config", whole) if isinstance(whole, dict) else whole
    config = layers.with_usual_names(config) if isinstance(config, dict) else config
    if not isinstance(config, dict) or "hidden_size" not in config:
        what = "is a config.json, but lacks hidden_size (n_embd in GPT-2's)"
        accepted = f"the config.json of a transformer, with {', '.join(layers.NEEDED)}"
        raise UserError(what, where=where, accepted=accepted)
    inherited = {key: whole[key] for key in ("torch_dtype", "dtype", "quantization_config") if key in whole}
    config = {**inherited, **config}
    model = Model(config, options.tp, where)
    types = of_config(config, options, where)
    found: list[Found] = []
    remarks: list[Remark] = []
    if model.model_type not in layers.KNOWN:
        why = "is not known here and read as Llama's: q, k and v in one product, gate and up in one"
        remarks.append(Remark(0, f"model_type {show(model.model_type)}", why, kept=True))
    for layer in layers.of_model(model, lm_head=options.lm_head):
        if layer.experts and not options.experts:
            remarks += [] if options.moe else [_experts_left_out(layer)]
            continue
        found.extend(Found(problem, layer.name) for problem in _problems(layer, types, options, where))
    return Read(tuple(found), tuple(remarks))


def _experts_left_out(layer: Layer) -> Remark:
    what = f"{layer.name}, {layer.experts} experts of N {layer.n} and K {layer.k}"
    return Remark(0, what, "many products of unequal M in one kernel; --moe takes that layer, --experts one "
                  "expert's even share")  # fmt: skip


def _problems(layer: Layer, types: Weights, options: CollectOptions, where: str) -> list[GemmProblem]:
    """A layer at every value of M; for an expert's layer, at an even share of the tokens, rounded up."""
    dtype, scaling = (types.plain, "none") if layer.plain else (types.dtype, types.scaling)
    common: dict[str, Any] = {"N": layer.n, "K": layer.k, "dtype_a": dtype, "dtype_b": dtype, "dtype_c": types.plain}
    common.update(layout_b="col", bias=layer.bias, scaling=scaling)
    rows = [-(-m * layer.chosen // layer.experts) if layer.experts else m for m in options.m_values]
    return [problem_of({"M": m, **common}, f"{where}, {layer.name}", Defaults()) for m in rows]


_TORCH = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
_OTHER_WAY = "name types that are to be tuned by --dtype, and --scaling if they have scales"
_EXPERTS_ALONE = "name one type for all by --dtype, or tune the experts alone: moe --from config.json without --dense"


@dataclass(frozen=True, slots=True)
class Weights:
    """dtype: type of A and B of most layers. plain: type of unquantized layers, and of C."""

    dtype: str
    scaling: str
    plain: str


def of_config(config: dict[str, Any], options: CollectOptions, where: str) -> Weights:
    """The types of the model. Raises UserError for weights that no kernel here multiplies, unless the command line
    gives other types."""
    named = str(config.get("torch_dtype") or config.get("dtype") or "bfloat16").removeprefix("torch.")
    plain = _TORCH.get(named)
    if plain is None:
        raise UserError(f"torch_dtype is {show(named)}", where=where, accepted=", ".join(_TORCH))
    if options.dtype:
        dtype = (options.fp8 or "fp8_e4m3") if options.dtype == "fp8" else options.dtype
        return Weights(dtype, options.scaling or "none", plain)
    quantised = config.get("quantization_config") or config.get("compression_config")
    if not isinstance(quantised, dict):
        return Weights(plain, options.scaling or "none", plain)
    dtype, scaling = _quantised(quantised, where, _EXPERTS_ALONE if options.moe else _OTHER_WAY)
    return Weights((options.fp8 or "fp8_e4m3") if dtype == "fp8" else dtype, options.scaling or scaling, plain)


def _quantised(quantised: dict[str, Any], where: str, hint: str) -> tuple[str, str]:
    """(dtype, scaling) of quantized layers. Raises UserError, with the hint."""
    method = quantised.get("quant_method")
    if method == "fp8":
        block = quantised.get("weight_block_size")
        if block not in (None, [SCALE_BLOCK, SCALE_BLOCK]):
            what = f"weight_block_size is {show(str(block))}"
            raise UserError(what, where=where, accepted=f"[{SCALE_BLOCK}, {SCALE_BLOCK}], or none", hint=hint)
        return "fp8", "block" if block else "tensor"
    if method == "compressed-tensors":
        known = _compressed(quantised)
        if known:
            return known
    raise UserError(
        f"its weights are quantised by {show(method)} in a way that no kernel here multiplies",
        where=where,
        accepted="fp8, or compressed-tensors with 8-bit weights and inputs",
        hint=hint,
    )


def _compressed(quantised: dict[str, Any]) -> tuple[str, str] | None:
    """(dtype, scaling) of compressed-tensors, if the first group has 8-bit weights and inputs; else None."""
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

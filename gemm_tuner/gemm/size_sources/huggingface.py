"""A model's config.json, as on Hugging Face: its linear layers at the numbers of tokens asked for."""

from __future__ import annotations

from typing import Any

from gemm_tuner.core.errors import UserError
from gemm_tuner.gemm.problem import GemmProblem
from gemm_tuner.gemm.problem_keys import Defaults, problem_of
from gemm_tuner.gemm.size_sources import layers, weights
from gemm_tuner.gemm.size_sources.found import Asked, Found, Read, Remark
from gemm_tuner.gemm.size_sources.layers import Layer, Model
from gemm_tuner.gemm.size_sources.weights import Weights
from gemm_tuner.system.documents import show
from gemm_tuner.system.json_records import parse_json

MAX_CHARS = 16 * 2**20
# Any of these keys makes a JSON file a model's config.
_MARKS = ("hidden_size", "n_embd", "model_type", "architectures")


def matches(text: str) -> bool:
    return text.lstrip().startswith("{") and any(f'"{key}"' in text for key in _MARKS)


def read(text: str, asked: Asked, where: str) -> Read:
    """The layers of the model. Raises UserError for a config.json that lacks what they are made of."""
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
    model = Model(config, asked.tp, where)
    types = weights.of_config(config, asked, where)
    found: list[Found] = []
    remarks: list[Remark] = []
    if model.model_type not in layers.KNOWN:
        why = "is not known here and read as Llama's: q, k and v in one product, gate and up in one"
        remarks.append(Remark(0, f"model_type {show(model.model_type)}", why, kept=True))
    for layer in layers.of_model(model, lm_head=asked.lm_head):
        if layer.experts and not asked.experts:
            remarks.append(_experts_left_out(layer))
            continue
        found.extend(Found(problem, layer.name) for problem in _problems(layer, types, asked, where))
    return Read(tuple(found), tuple(remarks))


def _experts_left_out(layer: Layer) -> Remark:
    what = f"{layer.name}, {layer.experts} experts of N {layer.n} and K {layer.k}"
    return Remark(0, what, "many products of unequal M in one kernel; --experts takes one expert's even share")


def _problems(layer: Layer, types: Weights, asked: Asked, where: str) -> list[GemmProblem]:
    """A layer at every number of tokens; of a mixture, at an expert's even share, rounded up."""
    dtype, scaling = (types.plain, "none") if layer.plain else (types.dtype, types.scaling)
    common: dict[str, Any] = {"N": layer.n, "K": layer.k, "dtype_a": dtype, "dtype_b": dtype, "dtype_c": types.plain}
    common.update(layout_b="col", bias=layer.bias, scaling=scaling)
    rows = [-(-m * layer.chosen // layer.experts) if layer.experts else m for m in asked.m_values]
    return [problem_of({"M": m, **common}, f"{where}, {layer.name}", Defaults()) for m in rows]

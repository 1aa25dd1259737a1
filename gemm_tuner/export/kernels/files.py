"""The exported files of tuned kernels: JSON by key in AITER's format, and Python source with triton.Config."""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gemm_tuner.core.errors import UserError
from gemm_tuner.export.assignments import assignments
from gemm_tuner.export.kernels.choose import Entry, TunedKernel
from gemm_tuner.export.kernels.launched import launched
from gemm_tuner.export.offers import LeftOut
from gemm_tuner.kernels.expressions import with_values
from gemm_tuner.kernels.kernel_spec import KernelSpec
from gemm_tuner.kernels.keys import Key, text_of
from gemm_tuner.system.documents import MAX_FILE_BYTES
from gemm_tuner.system.input_files import printable, read_text

# Launch options that are keyword arguments of triton.Config; other options are in its first argument.
OF_CONFIG = ("num_warps", "num_stages", "num_ctas", "maxnreg")
RULES = "rules"


def json_name(kernel: TunedKernel, device: str) -> str:
    """AITER's name of the file."""
    return f"{device}-{kernel.spec.name.upper()}.json"


def json_text(kernel: TunedKernel, path: Path, *, overwrite: bool) -> tuple[str, list[LeftOut]]:
    """(the parameters of every key in the format of AITER's ``save_configs_to_json``, the cases of entries that
    yield to those of the file, unless ``overwrite``). Other content of the file stays, except for RULES. Where a
    key stands for cases that were not tuned, RULES says what they must keep to.

    Raises UserError if the file exists and has another format.
    """
    held: Any = {}
    if path.exists():
        try:
            held = json.loads(read_text(path, "config file", "JSON", MAX_FILE_BYTES))
        except ValueError as error:
            raise UserError(f"is there and is no JSON: {error}", where=printable(path)) from error
        if not isinstance(held, dict):
            raise UserError("is there and holds no configurations", where=printable(path))
    held.pop(RULES, None)
    rules = {RULES: rules_of(kernel.spec)} if kernel.spec.key and kernel.spec.rules else {}
    made, left_out = {**held, **rules}, list[LeftOut]()
    for one in kernel.entries:
        key = text_of(one.key)
        ours = json.loads(json.dumps(one.params))
        yields = [] if overwrite else one.yields_to(path.name, key, held.get(key), ours)
        left_out += yields
        if not yields:
            made[key] = ours
    return json.dumps(made, indent=4) + "\n", left_out


def rules_of(spec: KernelSpec) -> list[dict[str, str]]:
    """The rules as expressions of a case's values and of parameters alone, each with its reason."""
    known: dict[str, ast.expr] = {}
    for name, text in (*spec.derived, *spec.args):
        known[name] = with_values(text, known)
    return [{"keep": ast.unparse(with_values(text, known)), "why": why} for text, why in spec.rules]


def triton_name(kernel: TunedKernel) -> str:
    return f"{kernel.spec.name}_configs.py"


def triton_text(kernel: TunedKernel, path: Path, *, overwrite: bool) -> tuple[str, list[LeftOut]]:
    """(source of CONFIGS, a triton.Config by key, for ``triton.autotune(configs=list(CONFIGS.values()), key=[...])``;
    the cases of entries that yield to those of the file, unless ``overwrite``). Other entries of the file stay.

    Raises UserError if the file exists and has another format.
    """
    key = ", ".join(kernel.spec.key) if kernel.spec.key else "the values of a case"
    lines = [f'"""Tuned configurations of {kernel.spec.name}, by {key}."""', "", "import triton", "", "CONFIGS = {"]
    held = _held_configs(path) if path.exists() else {}
    made, left_out = {of: text for of, (_, text) in held.items()}, list[LeftOut]()
    for entry in kernel.entries:
        there, ours = held[entry.key][0] if entry.key in held else None, launched(kernel.spec, entry)
        yields = [] if overwrite else entry.yields_to(path.name, text_of(entry.key), there, ours)
        left_out += yields
        if not yields:
            made[entry.key] = f"    {entry.key!r}: {config_text(ours)},{_remark(entry)}"
    return "\n".join([*lines, *made.values(), "}", ""]), left_out


def _held_configs(path: Path) -> dict[Key, tuple[dict[str, Any], str]]:
    """(parameters, lines) of each entry of CONFIGS in a file that ``triton_text`` made. Raises UserError for another
    file."""
    text = read_text(path, "config file", "Python", MAX_FILE_BYTES)
    try:
        configs = assignments(text)["CONFIGS"]
        return dict(_held_config(*one, text.split("\n")) for one in zip(configs.keys, configs.values, strict=True))
    except (SyntaxError, ValueError, TypeError, AttributeError, KeyError):
        hint = "move the file away"
        raise UserError("is there and holds no CONFIGS of triton.Config", where=printable(path), hint=hint) from None


def _held_config(key: Any, call: Any, lines: list[str]) -> tuple[Key, tuple[dict[str, Any], str]]:
    (inner,) = map(ast.literal_eval, call.args)
    params = {**inner, **{str(one.arg): ast.literal_eval(one.value) for one in call.keywords}}
    return ast.literal_eval(key), (params, "\n".join(lines[key.lineno - 1 : call.end_lineno]))


def config_text(params: Mapping[str, Any]) -> str:
    """Source such as ``triton.Config({...}, num_warps=4)``."""
    inner = {name: value for name, value in params.items() if name not in OF_CONFIG}
    outer = [f"{name}={params[name]!r}" for name in OF_CONFIG if name in params]
    return f"triton.Config({', '.join([repr(inner), *outer])})"


def _remark(entry: Entry) -> str:
    """A comment about how the entry was checked and chosen."""
    said = "; ".join(filter(None, (f"verified: {entry.verified.value}", entry.note)))
    return f"  # {said}"

"""Reads and writes the keys of an entry that describe the problem (size files, results files)."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from gemm_tuner.core.dtypes import DTYPES, INPUT_DTYPES, OUTPUT_DTYPES
from gemm_tuner.core.errors import UserError
from gemm_tuner.gemm.combinations import needs_float, refuse_meaningless
from gemm_tuner.gemm.problem import ACTIVATIONS, MAX_BATCH, MAX_DIMENSION, PRECISIONS, SCALINGS, GemmProblem, Layout
from gemm_tuner.system.documents import show
from gemm_tuner.system.values import choice, did_you_mean, factor, integer

_CHOICES = {"activation": ACTIVATIONS, "scaling": SCALINGS, "precision": PRECISIONS}
# Written only when they differ from their defaults.
_EXTRA_KEYS = ("batch", "activation", "alpha", "beta", "scaling", "precision")
SIZE_KEYS = (
    *("M", "N", "K", "dtype", "dtype_a", "dtype_b", "dtype_c"),
    *("layout_a", "layout_b", "rowMajorA", "rowMajorB", "bias", *_EXTRA_KEYS),
)
_PLAIN: dict[str, Any] = {f.name: f.default for f in dataclasses.fields(GemmProblem)}
_ROW_MAJOR = {"T": Layout.ROW, "N": Layout.COL, True: Layout.ROW, False: Layout.COL}
_LAYOUTS = {layout.value: layout for layout in Layout}


@dataclass(frozen=True)
class Defaults:
    """Values from the command line for keys that an entry leaves out.

    dtype_c: empty means that it follows from A (``dtype_c_for``).
    """

    dtype_a: str = "bf16"
    dtype_b: str = "bf16"
    dtype_c: str = ""
    layout_a: Layout = Layout.ROW
    layout_b: Layout = Layout.ROW
    batch: int = 1
    bias: bool = False
    activation: str = "none"
    alpha: float = 1.0
    beta: float = 0.0
    scaling: str = "none"
    precision: str = "ieee"


def dtype_c_for(problem: GemmProblem) -> str:
    """The default type of C: that of A; bf16 for fp8; int32 for int8, or bf16 if C has non-integer values."""
    if DTYPES[problem.dtype_a].is_fp8:
        return "bf16"
    if problem.dtype_a == "int8":
        return "bf16" if needs_float(problem) else "int32"
    return problem.dtype_a


def problem_of(entry: dict[Any, Any], where: str, defaults: Defaults | None = None) -> GemmProblem:
    """The problem of an entry; each key and their combination are validated. Raises UserError."""
    defaults = defaults or Defaults()
    m, n, k = (integer(entry, key, where, 1, MAX_DIMENSION) for key in ("M", "N", "K"))
    values = {key: getattr(defaults, key) for key in ("bias", *_EXTRA_KEYS)}
    if "bias" in entry:
        if type(entry["bias"]) is not bool:
            raise UserError(f"bias is {show(entry['bias'])}", where=where, accepted="true or false")
        values["bias"] = entry["bias"]
    if "batch" in entry:
        values["batch"] = integer(entry, "batch", where, 1, MAX_BATCH)
    values.update({key: factor(entry, key, where) for key in ("alpha", "beta") if key in entry})
    values.update({key: choice(entry, key, known, where) for key, known in _CHOICES.items() if key in entry})
    dtype_a, dtype_b, dtype_c = _dtypes(entry, where, defaults)
    layout_a = _layout(entry, "layout_a", "rowMajorA", where, defaults.layout_a)
    layout_b = _layout(entry, "layout_b", "rowMajorB", where, defaults.layout_b)
    problem = GemmProblem(m, n, k, dtype_a, dtype_b, dtype_c, layout_a, layout_b, **values)
    if not dtype_c:
        problem = dataclasses.replace(problem, dtype_c=dtype_c_for(problem))
    refuse_meaningless(problem, where)
    return problem


def problem_row(problem: GemmProblem) -> dict[str, Any]:
    """The keys of a row that describe its problem, as plain values; ``problem_of`` is the inverse."""
    row = {
        "M": int(problem.m),
        "N": int(problem.n),
        "K": int(problem.k),
        "dtype_a": problem.dtype_a,
        "dtype_b": problem.dtype_b,
        "dtype_c": problem.dtype_c,
        "layout_a": problem.layout_a.value,
        "layout_b": problem.layout_b.value,
        "bias": bool(problem.bias),
    }
    extras = {key: getattr(problem, key) for key in _EXTRA_KEYS if getattr(problem, key) != _PLAIN[key]}
    return {**row, **{key: type(_PLAIN[key])(value) for key, value in extras.items()}}


def _dtypes(entry: dict[Any, Any], where: str, defaults: Defaults) -> tuple[str, str, str]:
    """The types of A, B and C; C's is "" if neither the entry nor the command line gives it."""
    keys = ("dtype_a", "dtype_b", "dtype_c")
    _refuse_both(entry, "dtype", keys, where)
    if "dtype" in entry:
        dtype = _dtype(entry["dtype"], "dtype", INPUT_DTYPES, where)
        return dtype, dtype, ""
    a, b, c = (entry.get(key, getattr(defaults, key)) for key in keys)
    a, b = _dtype(a, "dtype_a", INPUT_DTYPES, where), _dtype(b, "dtype_b", INPUT_DTYPES, where)
    is_given = "dtype_c" in entry or defaults.dtype_c
    return a, b, _dtype(c, "dtype_c", OUTPUT_DTYPES, where) if is_given else ""


def _dtype(value: object, key: str, known: tuple[str, ...], where: str) -> str:
    if isinstance(value, str) and value in known:
        return value
    hint = dtype_hint(value, known) if isinstance(value, str) else ""
    raise UserError(f"{key} is {show(value)}", where=where, accepted=", ".join(known), hint=hint)


def _layout(entry: dict[Any, Any], key: str, rocm_key: str, where: str, default: Layout) -> Layout:
    _refuse_both(entry, key, (rocm_key,), where)
    value = entry.get(key, entry.get(rocm_key))
    if rocm_key in entry:
        if isinstance(value, (str, bool)) and value in _ROW_MAJOR:
            return _ROW_MAJOR[value]
        accepted = "T or true (row-major), N or false (column-major)"
        raise UserError(f"{rocm_key} is {show(value)}", where=where, accepted=accepted)
    if key not in entry:
        return default
    if isinstance(value, str) and value in _LAYOUTS:
        return _LAYOUTS[value]
    raise UserError(f"{key} is {show(value)}", where=where, accepted=", ".join(_LAYOUTS))


def _refuse_both(entry: dict[Any, Any], key: str, others: tuple[str, ...], where: str) -> None:
    clash = [other for other in others if other in entry]
    if key in entry and clash:
        raise UserError(f"both {key} and {clash[0]} are given", where=where, hint="delete one of the two")


_E4M3 = ("fp8_e4m3", "fp8_e4m3_fnuz")
_E5M2 = ("fp8_e5m2", "fp8_e5m2_fnuz")
_OTHER_NAMES: dict[str, tuple[str, ...]] = {
    **{name: (t.name,) for t in DTYPES.values() for name in (t.torch_name, t.triton_name)},
    **{t.torch_name.removeprefix("float8_"): (t.name,) for t in DTYPES.values() if t.is_fp8},
    **dict.fromkeys(("fp8", "float8", "f8", "e4m3", "float8_e4m3", "fp8e4m3"), _E4M3),
    **dict.fromkeys(("bf8", "e5m2", "fp8e5m2"), _E5M2),
    **dict.fromkeys(("f16", "half"), ("fp16",)),
    **dict.fromkeys(("bf", "bfp16", "b16"), ("bf16",)),
    **dict.fromkeys(("f32", "float", "single"), ("fp32",)),
    **dict.fromkeys(("i8", "s8", "uint8", "char"), ("int8",)),
    **dict.fromkeys(("i32", "s32", "int"), ("int32",)),
}
_USED_BY = {**dict.fromkeys(_E4M3 + _E5M2, " (OCP)"), **dict.fromkeys((_E4M3[1], _E5M2[1]), " (MI300)")}


def dtype_hint(name: str, accepted: tuple[str, ...]) -> str:
    """A hint with the accepted name for a name of another tool or a misspelt one; "" if none is similar.

    accepted: INPUT_DTYPES or OUTPUT_DTYPES.
    """
    folded = name.strip().casefold()[:60]
    if folded == "tf32":
        return "tf32 is a way to multiply fp32: write fp32, and tf32 for precision"
    meant = tuple(n for n in DTYPES if n == folded) or _OTHER_NAMES.get(folded, ())
    possible = [f"{other}{_USED_BY.get(other, '')}" for other in meant if other in accepted]
    if possible:
        return f"did you mean {' or '.join(possible)}?"
    if meant:
        return f"{meant[0]} is for {'C' if meant[0] == 'int32' else 'A and B'} only"
    return did_you_mean(folded, accepted)

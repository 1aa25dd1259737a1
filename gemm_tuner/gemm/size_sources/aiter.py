"""Sizes from AITER's untuned CSV files, such as ``a8w8_blockscale_untuned_gemm.csv``: one GEMM per row.

A is [M, K] and the weight [N, K], both row-major: x @ weight.T, so B is column-major here. Only the file of the bf16
operator has columns for the types; for the others the file's name or ``--aiter_op`` gives the operator.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gemm_tuner.core.errors import UserError
from gemm_tuner.gemm.problem import GemmProblem
from gemm_tuner.gemm.size_sources.found import CannotExpress, CollectOptions, Found, Read, Remark, expressed
from gemm_tuner.system.documents import show

_DIMENSIONS = ("M", "N", "K")
TYPES = {
    **{f"torch.{name}": short for name, short in (("float16", "fp16"), ("bfloat16", "bf16"), ("float32", "fp32"))},
    "torch.float8_e4m3fn": "fp8_e4m3",
    "torch.float8_e5m2": "fp8_e5m2",
    "torch.float8_e4m3fnuz": "fp8_e4m3_fnuz",
    "torch.float8_e5m2fnuz": "fp8_e5m2_fnuz",
    "torch.int8": "int8",
}


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator of AITER. fault: why it cannot be expressed as a GemmProblem; "" if it can.

    dtype: type of A and B if the row does not name it; ``fp8`` means the e4m3 type of the GPU; "" if the row must name
           it.
    """

    dtype: str
    scaling: str
    fault: str = ""


_SHUFFLED = "its weights are shuffled for the matrix cores, no plain matrix"
# Longest names first, because some contain others.
OPERATORS = {
    "a8w8_blockscale_bpreshuffle": Operator("fp8", "block", _SHUFFLED),
    "a4w4_blockscale": Operator("fp8", "block", "no kernel here multiplies fp4"),
    "a8w8_blockscale": Operator("fp8", "block"),
    "a8w8_bpreshuffle": Operator("", "row_col", _SHUFFLED),
    "batched_bf16": Operator("bf16", "none"),
    "batched_a8w8": Operator("int8", "tensor", "scales of a row or column belong to one matrix, not to a batch"),
    "bf16": Operator("bf16", "none"),
    "a16w16": Operator("bf16", "none"),
    "a8w8": Operator("", "row_col"),
}


def matches(text: str) -> bool:
    """Whether the first line is a header with the columns M, N and K."""
    return set(_DIMENSIONS) <= set(_columns(text.partition("\n")[0]))


def _columns(line: str) -> list[str]:
    """The cells of a line; AITER writes no cells that need quotes."""
    return [cell.strip() for cell in line.split(",")]


def operator_in(name: str) -> str:
    """The operator in the name of a file; "" if there is none."""
    return next((known for known in OPERATORS if known in name.casefold()), "")


def read(text: str, options: CollectOptions, path: Path) -> Read:
    """The rows of the file. Raises UserError if the operator is unknown."""
    if not matches(text):
        raise UserError("has no header with M, N and K", accepted="such as M,N,K or M,N,K,q_dtype_w")
    lines = text.split("\n")
    header = _columns(lines[0])
    op = options.op or ("a16w16" if "dtype" in header else "") or operator_in(path.name)
    if not op and "q_dtype_w" in header:
        op = "a8w8"
    if not op:
        raise UserError("does not say which operator its sizes are for", accepted=f"one of {', '.join(OPERATORS)}",
                        hint="name it by --aiter_op")  # fmt: skip
    found: list[Found] = []
    remarks: list[Remark] = []
    for number, line in enumerate(lines[1:], 2):
        cells = _columns(line)
        if not any(cells):
            continue
        try:
            row = dict(zip(header, cells, strict=True))
            found.append(Found(problem(row, op, options), f"line {number}"))
        except CannotExpress as error:
            remarks.append(Remark(number, show(line), str(error)))
        except ValueError:
            remarks.append(Remark(number, show(line), f"has {len(cells)} columns and the header {len(header)}"))
    return Read(tuple(found), tuple(remarks))


def problem(row: dict[str, str], op: str, options: CollectOptions) -> GemmProblem:
    """The problem of a row (column name to cell). Raises CannotExpress."""
    operator, fp8 = OPERATORS[op], options.fp8 or "fp8_e4m3"
    if operator.fault:
        raise CannotExpress(operator.fault)
    entry: dict[str, Any] = {key: _count(row, key) for key in _DIMENSIONS}
    if _flag(row, "bpreshuffle"):
        raise CannotExpress(_SHUFFLED)
    named = row.get("dtype") or row.get("q_dtype_w") or options.dtype or operator.dtype
    if not named:
        raise CannotExpress("has no q_dtype_w to say whether it is int8 or fp8: say so by --dtype")
    dtype = _dtype(named, fp8)
    entry.update(dtype_a=dtype, dtype_b=dtype, layout_a="row", layout_b="col")
    entry.update(bias=_flag(row, "bias"), batch=_count(row, "B") if "B" in row else 1)
    entry["scaling"] = "tensor" if _flag(row, "scaleAB") else operator.scaling
    entry["dtype_c"] = _dtype(row.get("outdtype") or ("torch.bfloat16" if _is_short(dtype) else dtype), fp8)
    return expressed(entry)


def _is_short(dtype: str) -> bool:
    return dtype == "int8" or dtype.startswith("fp8")


def _dtype(name: str, fp8: str) -> str:
    """This tool's name of an AITER type; its own names are accepted too. Raises CannotExpress."""
    if name == "fp8":
        return fp8
    if name in TYPES.values():
        return name
    if name not in TYPES:
        raise CannotExpress(f"no kernel here multiplies {show(name)}")
    return TYPES[name]


def _count(row: dict[str, str], key: str) -> int:
    if not row[key].isascii() or not row[key].isdigit() or len(row[key]) > 12:
        raise CannotExpress(f"{key} is {show(row[key])}")
    return int(row[key])


def _flag(row: dict[str, str], key: str) -> bool:
    """The value of a boolean column; False if the column is missing. Raises CannotExpress for other values."""
    value = row.get(key, "False")
    if value not in ("True", "False", "1", "0"):
        raise CannotExpress(f"{key} is {show(value)}")
    return value in ("True", "1")

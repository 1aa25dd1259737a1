"""Sizes from PyTorch TunableOp's CSV, untuned or tuned: ``<op>_<types>_<TN>,<tn>_<m>_<n>_<k>_ld_<lda>_<ldb>_<ldc>``.

The letters and sizes are those of the BLAS call, whose matrices are column-major. torch's row-major C[M, N] is BLAS'
column-major C with m = N rows and n = M columns, so the operands are swapped: BLAS' B is A here, and BLAS' A is B.
A column-major matrix is the row-major transpose: 'n' (not transposed) is ``row`` here and 't' is ``col``. Thus
'tn' is A row-major and B column-major, x @ weight.T of a linear layer. The types of a scaled GEMM are in torch's order.
Fields: aten/src/ATen/cuda/tunable/GemmCommon.h, ``Signature()``; reading: torch/cuda/tunable.py.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from gemm_tuner.gemm.problem import GemmProblem
from gemm_tuner.gemm.size_sources.found import CannotExpress, CollectOptions, Found, Read, Remark, expressed
from gemm_tuner.system.documents import show

_OPERATORS = ("GemmTunableOp", "GemmAndBiasTunableOp", "GemmStridedBatchedTunableOp", "ScaledGemmTunableOp")
LINE = re.compile(rf"({'|'.join(_OPERATORS)})_(.+)_([NT]{{2}}),([^,]+)(,.*)?")
_PARAMS = re.compile(
    r"([nt]{2})_(\d{1,12})_(\d{1,12})_(\d{1,12})(?:_B_(\d{1,12}))?"
    r"(?:_ld_(\d{1,12})_(\d{1,12})_(\d{1,12}))?(?:_rw_([01])_bias_(\w+))?"
)
_TYPES = {
    "float": "fp32",
    "tf32": "fp32",
    "Half": "fp16",
    "BFloat16": "bf16",
    "Float8_e4m3fn": "fp8_e4m3",
    "Float8_e5m2": "fp8_e5m2",
    "Float8_e4m3fnuz": "fp8_e4m3_fnuz",
    "Float8_e5m2fnuz": "fp8_e5m2_fnuz",
}
_TYPE_NAME = re.compile("|".join(sorted(_TYPES, key=len, reverse=True)) + "|double|c10::complex<(?:float|double)>")
_LAYOUTS = {"n": "row", "t": "col"}


def matches(text: str) -> bool:
    """Whether any line has TunableOp's format."""
    return any(LINE.fullmatch(line.strip()) for line in text.split("\n"))


def read(text: str, options: CollectOptions, path: Path) -> Read:
    """The GEMMs of the file; Validator lines and empty lines are skipped."""
    found: list[Found] = []
    remarks: list[Remark] = []
    for number, line in enumerate(text.split("\n"), 1):
        line = line.strip()
        if not line or line.startswith("Validator,"):
            continue
        try:
            problem, padded = _problem(line)
        except CannotExpress as error:
            remarks.append(Remark(number, show(line), str(error)))
            continue
        found.append(Found(problem, f"line {number}"))
        if padded:
            remarks.append(Remark(number, show(line), f"as packed matrices: {padded}", kept=True))
    return Read(tuple(found), tuple(remarks))


def _problem(line: str) -> tuple[GemmProblem, str]:
    """(the problem of a line, which leading dimension is padded, in words). Raises CannotExpress."""
    whole = LINE.fullmatch(line)
    if whole is None:
        raise CannotExpress("is no GEMM of TunableOp")
    operator, types, letters = whole[1], whole[2], whole[3]
    params = _PARAMS.fullmatch(whole[4])
    if params is None or params[1] != letters.lower():
        raise CannotExpress(f"{show(whole[4])} does not read as the sizes of {operator}_{letters}")
    blas_m, blas_n, k = (int(params[i]) for i in (2, 3, 4))
    entry: dict[str, Any] = {"M": blas_n, "N": blas_m, "K": k, **_types(operator, types)}
    entry.update(layout_a=_LAYOUTS[params[1][1]], layout_b=_LAYOUTS[params[1][0]], batch=int(params[5] or 1))
    entry["bias"] = operator == "GemmAndBiasTunableOp" or params[10] not in (None, "None")
    if operator == "ScaledGemmTunableOp":
        entry["scaling"] = "row_col" if params[9] == "1" else "tensor"
    return expressed(entry), _padding(params, blas_m, blas_n, k) if params[6] else ""


def _types(operator: str, types: str) -> dict[str, str]:
    """The types as keys of a size entry. Raises CannotExpress for a type that no kernel here multiplies."""
    names = _TYPE_NAME.findall(types)
    if "_".join(names) != types or len(names) != (3 if operator == "ScaledGemmTunableOp" else 1):
        raise CannotExpress(f"the types {show(types)} are not known")
    foreign = next((name for name in names if name not in _TYPES), "")
    if foreign:
        raise CannotExpress(f"no kernel here multiplies {foreign}")
    a, b, c = (_TYPES[name] for name in (names * 3 if len(names) == 1 else names))
    return {"dtype_a": a, "dtype_b": b, "dtype_c": c, **({"precision": "tf32"} if names == ["tf32"] else {})}


def _padding(params: re.Match[str], blas_m: int, blas_n: int, k: int) -> str:
    """Which matrices have a leading dimension above the minimum, in words; BLAS' A is B here."""
    least = (blas_m if params[1][0] == "n" else k, k if params[1][1] == "n" else blas_n, blas_m)
    named = zip(("B", "A", "C"), least, (int(params[i]) for i in (6, 7, 8)), strict=True)
    return ", ".join(
        f"{name} has a leading dimension of {given}, not {low}" for name, low, given in named if given > low
    )

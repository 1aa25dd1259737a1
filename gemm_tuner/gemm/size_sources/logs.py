"""Sizes from logs of vLLM, SGLang and AITER: the lines that say that no tuned configuration was found.

vLLM and SGLang name the missing file, with N and K but without M, so the values of M come from the command line. AITER
also logs M. A is [M, K] and the weight [N, K], both row-major, so B is column-major here.
"""

from __future__ import annotations

import re
from pathlib import Path

from gemm_tuner.gemm.problem import SCALE_BLOCK, GemmProblem
from gemm_tuner.gemm.size_sources import aiter
from gemm_tuner.gemm.size_sources.found import CannotExpress, CollectOptions, Found, Read, Remark, expressed
from gemm_tuner.system.documents import show

_SERVED = re.compile(r"[Cc]onfig file not found at \[?'?(?:[^'\"\n]*?/)?((?:E=\d+,)?N=\d[^/'\"]*?\.json)")
_DENSE = re.compile(
    r"N=(\d{1,12}),K=(\d{1,12}),device_name=([^,]*),dtype=([^,]*)(?:,block_shape=\[(\d{1,6}), ?(\d{1,6})\])?\.json"
)
_AITER = re.compile(r"shape is M:\s*(\d+),\s*N:\s*(\d+),\s*K:\s*(\d+)(.*?)not found tuned config in ([^\s,]+)")
_AITER_FIELD = re.compile(r"(dtype|otype|bias|scaleAB|bpreshuffle)='?([\w.]+)'?")
# On these GPUs (gfx942) e4m3 is the fnuz encoding.
_FNUZ_DEVICES = re.compile("MI3(?:00|08|25)")


def matches(text: str) -> bool:
    return bool(_SERVED.search(text) or _AITER.search(text))


def read(text: str, options: CollectOptions, path: Path) -> Read:
    """The GEMMs of a log. A file or shape counts once, because all ranks log the same lines."""
    found: list[Found] = []
    remarks: list[Remark] = []
    seen: set[str] = set()
    for number, line in enumerate(text.split("\n"), 1):
        served, shape = _SERVED.search(line), _AITER.search(line)
        what = served[1] if served else shape[0] if shape else ""
        if not what or what in seen:
            continue
        seen.add(what)
        try:
            problems = _served(what, options) if served else [_shape(shape, options)] if shape else []
            found.extend(Found(problem, f"line {number}") for problem in problems)
        except CannotExpress as error:
            remarks.append(Remark(number, show(what), str(error)))
    return Read(tuple(found), tuple(remarks))


def _served(name: str, options: CollectOptions) -> list[GemmProblem]:
    """The GEMMs for a file that vLLM or SGLang did not find. Raises CannotExpress."""
    if name.startswith("E="):
        raise CannotExpress("is a fused mixture of experts, many products in one kernel, and its name does not say K")
    dense = _DENSE.fullmatch(name)
    if dense is None:
        raise CannotExpress("does not read as N, K, device_name, dtype and block_shape")
    n, k, device, dtype = int(dense[1]), int(dense[2]), dense[3], dense[4]
    if dtype != "fp8_w8a8":
        raise CannotExpress(f"{show(dtype)} with scales of blocks: such scales are for fp8 only")
    if (dense[5], dense[6]) != (str(SCALE_BLOCK), str(SCALE_BLOCK)):
        raise CannotExpress(f"only blocks of {SCALE_BLOCK} x {SCALE_BLOCK} have scales here")
    fp8 = options.fp8 or ("fp8_e4m3_fnuz" if _FNUZ_DEVICES.search(device) else "fp8_e4m3")
    types = {"dtype_a": fp8, "dtype_b": fp8, "dtype_c": "bf16", "layout_b": "col", "scaling": "block"}
    return [expressed({"M": m, "N": n, "K": k, **types}) for m in options.m_values]


def _shape(line: re.Match[str], options: CollectOptions) -> GemmProblem:
    """The GEMM of one line of AITER. Raises CannotExpress."""
    fields = dict(_AITER_FIELD.findall(line[4]))
    row = {"M": line[1], "N": line[2], "K": line[3]}
    row.update({key: value for key, value in fields.items() if key != "otype"})
    row.update({"outdtype": fields["otype"]} if "otype" in fields else {})
    op = options.op or aiter.operator_in(line[5].rpartition("/")[2])
    if not op:
        raise CannotExpress("does not say which operator it is for: name it by --aiter_op")
    return aiter.problem(row, op, options)

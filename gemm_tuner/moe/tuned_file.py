"""Reads a server's tuned file of a fused MoE layer: entries by number of tokens, of which the nearest is used."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gemm_tuner.core.errors import UserError
from gemm_tuner.core.plain_config import PlainConfig
from gemm_tuner.moe.launch import OF_DOWN
from gemm_tuner.moe.launcher import AMD_FIELDS, FIELDS, TMA
from gemm_tuner.moe.problem import MoeProblem
from gemm_tuner.moe.servers import SERVERS
from gemm_tuner.system.documents import show
from gemm_tuner.system.input_files import printable
from gemm_tuner.system.json_records import load_json

# vLLM's files may contain the Triton version that they were made with; its loader removes this key.
VERSION_KEY = "triton_version"
# Keys without effect: vLLM's launcher sets SPLIT_K to 1.
IGNORED = ("SPLIT_K",)


def nearest(keys: Mapping[str, Any], tokens: int) -> str:
    """The key that a server's loader uses; in a tie the first one in the file. Raises ValueError for a key that is not
    a number, and for a file without keys."""
    for key in keys:
        try:
            int(key)
        except ValueError:
            raise ValueError(f"the loader stops at the key {key!r}, which is no number") from None
    if not keys:
        raise ValueError("the file has no entry")
    return min(keys, key=lambda key: abs(int(key) - tokens))


def entries(path: Path) -> dict[str, dict[str, Any]]:
    """The entries of a file by key, without the version key. Raises UserError for a file of another format."""
    found, where = load_json(path, "tuned file"), printable(path)
    if not isinstance(found, dict):
        raise UserError("is no tuned file", where=where, accepted="a JSON mapping from numbers of tokens to configs")
    body = {key: value for key, value in found.items() if key != VERSION_KEY}
    for key, value in body.items():
        if not isinstance(value, dict):
            raise UserError(f"has {show(value)} under {show(key)}", where=where, accepted="configs, by tokens")
    return body


def config_at(path: Path, problem: MoeProblem, arch: str) -> PlainConfig:
    """The configuration in a file for a problem. arch: of the GPU that launches it. Raises UserError."""
    body, where = entries(path), printable(path)
    try:
        key = nearest(body, problem.M)
    except ValueError as error:
        raise UserError(str(error), where=where) from error
    entry = {name: value for name, value in body[key].items() if name not in IGNORED}
    server, by_tma = SERVERS[problem.server], entry.pop(TMA, False)
    has_tma = server.has_tma(problem, "hip" if arch.startswith("gfx") else "cuda")
    if by_tma is not False and not (by_tma is True and has_tma):
        what = f"has {show(by_tma)} for {TMA} under {show(key)}, by which {problem.dtype} is not tuned here"
        raise UserError(what, where=where, accepted="entries without it", hint="leave --current out")
    fields = [name for name in (*FIELDS, *AMD_FIELDS) if name in entry]
    wrong = [name for name in FIELDS if type(entry.get(name)) is not int or entry[name] < 1]
    wrong += [name for name in entry if name not in fields]
    if wrong:
        what = f"has {show(entry.get(wrong[0]))} for {wrong[0]} under {show(key)}"
        raise UserError(what, where=where, accepted=f"whole numbers for {', '.join(FIELDS)}")
    values = {name: int(entry[name]) for name in fields}
    if has_tma:  # for the up-projection; without a file of its own the other GEMM has the tile alone
        values |= {TMA: 1, OF_DOWN + TMA: 0} if by_tma else {TMA: 0}
    return PlainConfig(server.family, tuple(values.items()))

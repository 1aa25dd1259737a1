"""Files in which a server looks up the configurations of a kernel of its own, which was tuned as a kernel of a spec."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from gemm_tuner.consumers.vllm_kernels import KernelFile
from gemm_tuner.core.errors import UserError
from gemm_tuner.export.kernels.choose import Entry, TunedKernel
from gemm_tuner.export.offers import LeftOut
from gemm_tuner.system.input_files import printable
from gemm_tuner.system.json_records import load_json


@dataclass(frozen=True)
class ServerFile:
    """A file to write. entries: what was tuned in it, by its keys joined by a slash. remark: for its user."""

    path: Path
    text: str
    entries: dict[str, Entry]
    remark: str


def files_of(
    form: KernelFile, kernels: Iterable[TunedKernel], folder: Path, device: str, triton: str, *, overwrite: bool
) -> tuple[list[ServerFile], list[LeftOut]]:
    """(the files, merged with what is there; cases for which an earlier one is at the same key, and those that
    yield to what a file has, unless ``overwrite``).

    Raises UserError for a kernel whose cases or parameters are not those of the server's kernel, and for a file of
    another format.
    """
    by_place: dict[PurePosixPath, dict[tuple[str, ...], Entry]] = {}
    left_out = []
    for kernel in kernels:
        for entry in kernel.entries:
            for one in entry.cases:
                case = dict(one.problem.case)
                try:
                    form.require(case)
                    place, keys = form.place(case, entry.params, device), form.keys(case, entry.params)
                    form.entry(case, entry.params)
                except UserError as error:
                    raise UserError(
                        error.what, where=one.problem.key, accepted=error.accepted, hint=error.hint
                    ) from None
                there = by_place.setdefault(place, {})
                if keys in there:
                    why = f"{place.name} has one entry for {'/'.join(keys)}, which another case of the results is at"
                    left_out.append(LeftOut(one.problem.key, entry.config.name, why))
                else:
                    there[keys] = entry
    made = []
    for place, entries in by_place.items():
        file, yielding = _file(form, folder / place, entries, triton, overwrite=overwrite)
        made.append(file)
        left_out += yielding
    return made, left_out


def _file(
    form: KernelFile, path: Path, entries: Mapping[tuple[str, ...], Entry], triton: str, *, overwrite: bool
) -> tuple[ServerFile, list[LeftOut]]:
    head, left_out, written = form.head(triton), list[LeftOut](), dict[str, Entry]()
    body = {key: value for key, value in _held(path).items() if key not in head}
    for keys, entry in entries.items():
        level = body
        for key in keys[:-1]:
            level = level.setdefault(key, {})
            if not isinstance(level, dict):
                raise UserError("is there and of another format", where=printable(path), accepted=f"one of {form.name}")
        ours, name = json.loads(json.dumps(form.entry(dict(entry.cases[0].problem.case), entry.params))), "/".join(keys)
        yields = [] if overwrite else entry.yields_to(path.name, name, level.get(keys[-1]), ours)
        left_out += yields
        if not yields:
            level[keys[-1]], written[name] = ours, entry
    depth = len(next(iter(entries)))
    text = json.dumps({**head, **_ordered(body, depth)}, indent=4) + "\n"
    return ServerFile(path, text, written, form.remark(body)), left_out


def _held(path: Path) -> dict[str, Any]:
    held = load_json(path, "tuned file") if path.exists() else {}
    if not isinstance(held, dict):
        raise UserError("is there and holds no configurations", where=printable(path), accepted="a JSON mapping")
    return held


def _ordered(body: Mapping[str, Any], depth: int) -> dict[str, Any]:
    """Numbers in their order, to this depth; what is no number comes first."""
    keys = sorted(body, key=lambda key: int(key) if key.isdigit() else -1)
    return {
        key: _ordered(body[key], depth - 1) if depth > 1 and isinstance(body[key], dict) else body[key] for key in keys
    }

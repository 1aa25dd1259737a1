"""Reads exported files as their consumer does: which configuration each M gets, and how much slower than the tuned one
it is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gemm_tuner.consumers import sidecar
from gemm_tuner.consumers.block_fp8 import GRID
from gemm_tuner.consumers.consumer import Served, SizeFile
from gemm_tuner.consumers.sidecar import Note, Timed
from gemm_tuner.core.errors import UserError


@dataclass(frozen=True)
class Serving:
    """The configuration that one M gets.

    key:      the key that the loader uses.
    kind:     of the entry, as in sidecar.Note; "" if its origin is unknown.
    time_us:  time of the configuration at this M; None if it was not timed there.
    tuned_us: time of the best configuration of any family at this M, which the consumer may not be able to launch;
              None if this M was not tuned.
    default_us: time of the consumer's default at this M from the same finals as the entry; else None.
    is_predicted: the entry's times are predictions.
    """

    m: int
    key: str
    config: dict[str, Any]
    kind: str = ""
    time_us: float | None = None
    tuned_us: float | None = None
    default_us: float | None = None
    is_predicted: bool = False

    @property
    def cost_pct(self) -> float | None:
        """How much slower it is than the best configuration of any family, percent."""
        if self.time_us is None or not self.tuned_us:
            return None
        return 100 * (self.time_us / self.tuned_us - 1)


@dataclass(frozen=True)
class Answer:
    """The result for one data file. fault: why the consumer's loader fails on it; "" if it does not."""

    file: SizeFile
    servings: tuple[Serving, ...]
    fault: str = ""


def check(served: Served, root: Path, ms: tuple[int, ...]) -> tuple[list[Answer], list[str]]:
    """(what a consumer gets from the files below a folder, remarks about files that it never opens).

    ms: the values of M to look up; empty for the usual grid and the tuned ones. Raises UserError if there is no file.
    """
    files, remarks = served.files(root)
    if not files and not remarks:
        raise UserError(
            f"holds no file that {served.name} would read",
            where=str(root),
            accepted="the folder that was given to export by -o, or the one with the files themselves",
        )
    sidecars = {folder: sidecar.read(folder) for folder in {file.path.parent for file in files}}
    return [_answer(served, file, sidecars[file.path.parent], ms) for file in files], remarks


def _answer(served: Served, file: SizeFile, known: sidecar.Sidecar, ms: tuple[int, ...]) -> Answer:
    try:
        body = served.entries(file.path)
    except UserError as error:
        return Answer(file, (), error.what)
    notes = known.known(file.path.name, body)
    sizes = known.sizes.get(file.path.name, {})
    servings: list[Serving] = []
    for m in ms or sorted({*GRID, *(int(key) for key in sizes if key.isdecimal())}):
        try:
            key = served.look_up(body, m)
        except ValueError as error:
            return Answer(file, tuple(servings), str(error))
        servings.append(_serving(m, key, body[key], notes.get(key), sizes.get(str(m))))
    return Answer(file, tuple(servings))


def _serving(m: int, key: str, config: dict[str, Any], note: Note | None, timed: Timed | None) -> Serving:
    tuned_us = timed.tuned_us if timed else None
    if note is None:
        return Serving(m, key, config, tuned_us=tuned_us)
    time_us = timed.times_us.get(note.name) if timed else None
    default_us = note.default_us if note.m == m else None
    return Serving(m, key, config, note.kind, time_us, tuned_us, default_us, note.source == "predicted")

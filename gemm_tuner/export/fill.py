"""Fills entries for values of M that were not tuned, so that a small M does not get the tile of a much larger one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import PurePosixPath

from gemm_tuner.consumers.consumer import Body, Consumer, ExportTarget
from gemm_tuner.consumers.sidecar import DEFAULT, FAR, MEASURED_KINDS, STAND_IN, Note
from gemm_tuner.space.rule import next_power_of_2

LEAST_TILE = 16  # rows; the minimum of tl.dot


def fill(
    consumer: Consumer, place: PurePosixPath, target: ExportTarget, body: Body, notes: dict[str, Note]
) -> dict[str, Note | None]:
    """The entries to fill in, for keys of the consumer's grid that are missing or were filled earlier.

    In order of preference: the configuration of a nearby tuned M (``stand_in``); the consumer's default; if its default
    is unknown, the nearest smaller M, or a larger one with a small tile; else None.
    """
    measured = {note.m: note for note in notes.values() if note.kind in MEASURED_KINDS and tile_rows(note)}
    found: dict[str, Note | None] = {}
    for key, m in consumer.grid:
        note = notes.get(key)
        if key not in body or (note is not None and note.kind not in MEASURED_KINDS):
            found[key] = _filling(consumer, place, target, m, measured)
    return found


def _filling(
    consumer: Consumer, place: PurePosixPath, target: ExportTarget, m: int, measured: dict[int, Note]
) -> Note | None:
    rows = {tuned: tile_rows(note) for tuned, note in measured.items()}
    near = stand_in(m, rows)
    if near is not None:
        return _from(measured[near], STAND_IN)
    default = consumer.default(place, m, target)
    if default is not None:
        return Note(DEFAULT, default)
    if consumer.uses_smaller_m:
        smaller = [tuned for tuned in rows if tuned <= m]
        larger = [tuned for tuned in rows if tuned > m and rows[tuned] <= most_rows(m)]
        if smaller or larger:
            return _from(measured[max(smaller) if smaller else min(larger)], FAR)
    return None


def stand_in(m: int, tile_rows: Mapping[int, int]) -> int | None:
    """The tuned M whose configuration can be used for an M that was not tuned; None if there is none.

    A tuned M can be used if its tile has at most ``most_rows(m)`` rows, and if it is within a factor of two of m or
    both fit into one tile. The nearest by ratio is used, in a tie the smaller one. tile_rows: BLOCK_SIZE_M by tuned M.
    """
    able = [
        tuned
        for tuned, rows in tile_rows.items()
        if rows <= most_rows(m) and (max(m, tuned) <= 2 * min(m, tuned) or max(m, tuned) <= rows)
    ]
    return min(able, key=lambda tuned: (max(m, tuned) / min(m, tuned), tuned), default=None)


def most_rows(m: int) -> int:
    """The largest number of tile rows for an M of m that was not tuned: m rounded up to a power of two, at least 16."""
    return max(LEAST_TILE, next_power_of_2(m))


def tile_rows(note: Note) -> int:
    """BLOCK_SIZE_M of a measured entry; 0 for other entries."""
    rows = note.entry.get("BLOCK_SIZE_M")
    return rows if type(rows) is int and rows > 0 and note.m > 0 else 0


def _from(note: Note, kind: str) -> Note:
    """The note for using the configuration of a measured entry at another M, without its times."""
    return replace(note, kind=kind, time_us=None, stage="", default_us=None)

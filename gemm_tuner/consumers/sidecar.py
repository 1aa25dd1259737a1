"""Provenance of exported entries, stored in an extra file that no consumer reads.

An entry of a data file is known only if it equals the one recorded here. Entries that were edited since, or that came
with the consumer, are unknown.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gemm_tuner.core.errors import UserError
from gemm_tuner.system.documents import show, write_text_atomically
from gemm_tuner.system.input_files import printable
from gemm_tuner.system.json_records import Count, Finite, Int, load_json, record_of

FILE_NAME = "gemm_tuner_provenance.json"
FORMAT_VERSION = 1
TUNED, TABLE, STAND_IN, FAR, DEFAULT = "tuned", "from_table", "stand_in", "far_stand_in", "default"
MEASURED_KINDS = (TUNED, TABLE)


@dataclass(frozen=True)
class Note:
    """The provenance of one entry.

    kind:     ``tuned``: the winner of the size; ``from_table``: the best configuration of the run's table, or beside
              the winner in its row, that the consumer can launch; ``stand_in``: the configuration of a nearby M;
              ``far_stand_in``: of a distant M; ``default``: the consumer's default.
    entry:    the entry as written.
    m:        the M at which it was measured; 0 for a default.
    time_us:  median kernel time at that M; None if unknown.
    stage:    where the time is from: ``results``, ``served``, ``finals``, ``screen``, or ``model`` if nothing ran.
    verified: it was checked on the GPU. check: otherwise how it was checked, a value of records.Verified; "" if
              ``verified``, and for a default.
    default_us: time of the consumer's default at the same M in the same finals; None if it was not timed.
    results:  the key of the results file in Sidecar.results.
    """

    kind: str
    entry: dict[str, Any]
    m: Int = 0
    name: str = ""
    time_us: Finite | None = None
    stage: str = ""
    source: str = ""
    verified: bool = False
    check: str = ""
    default_us: Finite | None = None
    results: str = ""

    @property
    def is_predicted(self) -> bool:
        """Whether its time is the model's."""
        return self.source == "predicted"


@dataclass(frozen=True)
class Timed:
    """Times at one M of a file, whether or not the file has an entry for it.

    tuned, tuned_us: name and median time of the tuning's winner, of any family.
    times_us:        times at this M of the file's configurations, by name, for those that a run timed.
    """

    tuned: str
    tuned_us: Finite | None = None
    times_us: dict[str, Finite] = field(default_factory=dict)


@dataclass
class Sidecar:
    """files: notes by data file and key. sizes: times by data file and M. untold: what a data file's name does not tell
    of the problems that its entries are for. results: by consumer and sha256 of a results file, its name, its header
    and the sizes that were left out."""

    format_version: Count = FORMAT_VERSION
    files: dict[str, dict[str, Note]] = field(default_factory=dict)
    sizes: dict[str, dict[str, Timed]] = field(default_factory=dict)
    untold: dict[str, str] = field(default_factory=dict)
    results: dict[str, dict[str, Any]] = field(default_factory=dict)

    def known(self, file: str, body: Mapping[str, object]) -> dict[str, Note]:
        """The notes of a file's entries by key, without entries that were changed since."""
        return {key: note for key, note in self.files.get(file, {}).items() if body.get(key) == note.entry}


def read(folder: Path) -> Sidecar:
    """The provenance of a folder's files; empty if there is none. Raises UserError if it cannot be read."""
    path = folder / FILE_NAME
    if not path.exists():
        return Sidecar()
    try:
        found = record_of(Sidecar, load_json(path, "provenance"), printable(path))
        if found.format_version != FORMAT_VERSION:
            raise UserError(f"has format_version {found.format_version}", where=printable(path))
    except UserError as error:
        hint = "move it away: its entries are then unknown, and kept unless --overwrite"
        raise UserError(error.what, where=error.where, accepted=error.accepted, hint=hint) from error
    return found


def write(folder: Path, sidecar: Sidecar) -> None:
    """Writes the provenance of a folder's files atomically."""
    document = {
        "format_version": FORMAT_VERSION,
        "files": _plain(sidecar.files),
        "sizes": _plain(sidecar.sizes),
        **({"untold": dict(sorted(sidecar.untold.items()))} if sidecar.untold else {}),
        "results": dict(sorted(sidecar.results.items())),
    }
    write_text_atomically(folder / FILE_NAME, json.dumps(document, indent=1) + "\n")


def read_entries(path: Path) -> dict[str, dict[str, Any]]:
    """A data file's entries by key. Raises UserError for a file that is not a JSON object of objects."""
    entries: dict[str, dict[str, Any]] = load_json(path, "config file")
    for key, entry in entries.items() if isinstance(entries, dict) else [("", entries)]:
        if not isinstance(entry, dict):
            what = f"has {show(entry)}" + (f" under the key {show(key)}" if key else "")
            raise UserError(what, where=printable(path), accepted="configs, by key", hint="mend or move the file")
    return entries


def _plain(by_file: Mapping[str, Mapping[str, Note | Timed]]) -> dict[str, dict[str, dict[str, Any]]]:
    """Records as JSON objects, without fields that are at their defaults."""
    return {file: {key: _fields(one) for key, one in records.items()} for file, records in sorted(by_file.items())}


def _fields(record: Note | Timed) -> dict[str, Any]:
    defaults = {f.name: f.default for f in dataclasses.fields(record)}
    return {k: v for k, v in dataclasses.asdict(record).items() if v not in (defaults[k], {})}

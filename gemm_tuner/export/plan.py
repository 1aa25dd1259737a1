"""Plans and writes the files of an export, merging new entries into existing files and filling gaps.

An existing entry stays unless the new one is better: it is faster at the same M, or measured while the old one was
filled in, or measured at a larger M of the same bucket. An entry of unknown origin (not in a sidecar, or edited since)
stays unless ``overwrite``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from gemm_tuner.consumers import sidecar
from gemm_tuner.consumers.consumer import Body, Consumer, Entry, ExportTarget, Offer
from gemm_tuner.consumers.sidecar import MEASURED_KINDS, TABLE, TUNED, Note, Sidecar, Timed
from gemm_tuner.core.errors import EnvironmentFault, UserError
from gemm_tuner.core.records import Verified
from gemm_tuner.export.beside import SERVED
from gemm_tuner.export.fill import fill
from gemm_tuner.export.offers import RESULTS, LeftOut
from gemm_tuner.system.documents import show, write_text_atomically
from gemm_tuner.system.input_files import printable


@dataclass(frozen=True)
class Change:
    """The change of one key. what: ``add``, ``replace``, ``keep`` (the old entry stays, for the reason ``why``) or
    ``same``."""

    key: str
    what: str
    kind: str
    why: str = ""


@dataclass(frozen=True)
class FilePlan:
    """One data file: its new text, the provenance of its entries, the times of its tuned sizes, its changes, and what
    its name does not tell (``Consumer.untold``)."""

    place: PurePosixPath
    text: str
    notes: dict[str, Note]
    sizes: dict[str, Timed]
    changes: tuple[Change, ...]
    untold: str = ""

    @property
    def differs(self) -> bool:
        return any(change.what in ("add", "replace") for change in self.changes)


def group(
    consumer: Consumer, offers: Iterable[Offer], target: ExportTarget
) -> tuple[dict[PurePosixPath, list[Offer]], list[LeftOut]]:
    """(offers by file, best of each key first; those left out because a better one has the same key)."""
    files: dict[PurePosixPath, list[Offer]] = {}
    firsts: dict[tuple[PurePosixPath, str], Offer] = {}
    left_out = []
    for offer in sorted(offers, key=consumer.rank):
        key = consumer.key(offer.problem)
        for number, place in enumerate(consumer.places(offer.problem, target)):
            first = firsts.setdefault((place, key), offer)
            if first is not offer and number == 0:
                reason = f"shares the key {key} with {first.problem.key}, which comes first"
                left_out.append(LeftOut(offer.problem.key, offer.config.name, reason, served=True))
            files.setdefault(place, []).append(offer)
    return files, left_out


def plan_file(
    consumer: Consumer,
    place: PurePosixPath,
    offers: list[Offer],
    target: ExportTarget,
    known: Sidecar,
    results: str,
    *,
    overwrite: bool,
) -> FilePlan | str:
    """The new content of one file, or the reason why there is none. offers: as returned by ``group``."""
    path = target.root / place
    old = consumer.load(path) if path.is_file() else {}
    refuse_unreadable(consumer, old, path)
    body = dict(old)
    notes = known.known(place.name, old)
    untold = "; ".join(sorted(filter(None, {consumer.untold(offer.problem) for offer in offers})))
    there = known.untold.get(place.name, untold) if notes else untold
    if there != untold and not overwrite:
        return f"its file holds what was tuned for {there}, which the name does not tell; --overwrite replaces it"
    if there != untold:
        body = {key: entry for key, entry in old.items() if key not in notes}
        notes = {}
    changes: dict[str, Change] = {}
    for offer in offers:
        key = consumer.key(offer.problem)
        if key in changes:
            continue
        note = note_of(offer, consumer.entry_at(place, offer, target.arch), results)
        changes[key] = change = merged(key, note, body.get(key), notes.get(key), overwrite=overwrite)
        if change.what in ("add", "replace", "same"):
            body[key], notes[key] = note.entry, note
    for key, filling in fill(consumer, place, target, body, notes).items():
        if filling is None:
            return (
                f"no config is known for {key}: tune smaller sizes, or export into a folder that holds {consumer.name}"
            )
        what = "add" if key not in body else "same" if body[key] == filling.entry else "replace"
        body[key], notes[key] = filling.entry, filling
        changes[key] = Change(key, what, filling.kind, f"from M={filling.m}" if filling.m else "")
    body = {key: body[key] for key in sorted(body, key=consumer.order)}
    notes = {key: notes[key] for key in body if key in notes}
    timed = known.sizes.get(place.name, {}) if there == untold else {}
    sizes = timed_sizes(offers, notes, timed) if consumer.grid else {}
    listed = tuple(changes[key] for key in sorted(changes, key=consumer.order))
    return FilePlan(place, consumer.text(body, target), notes, sizes, listed, untold)


def refuse_unreadable(consumer: Consumer, body: Body, path: Path) -> None:
    """Raises UserError if an existing file has a key that the consumer's loader refuses."""
    for key in body:
        try:
            consumer.order(key)
        except ValueError:
            raise UserError(
                f"has the key {show(key)}, at which {consumer.name}'s loader stops",
                where=printable(path),
                hint="delete this key, or move the file away",
            ) from None


def merged(key: str, new: Note, there: Entry | None, old: Note | None, *, overwrite: bool) -> Change:
    """The change of a key that has a new entry. there, old: the existing entry and its provenance."""
    if there is None:
        return Change(key, "add", new.kind)
    if there == new.entry and (old is None or not is_better(old, new)):
        return Change(key, "same", new.kind)
    if there == new.entry:
        return Change(key, "keep", old.kind if old else "", "it is known with a better time")
    if old is None:
        if overwrite:
            return Change(key, "replace", new.kind, "nothing was known of the old entry")
        return Change(key, "keep", "", "nothing is known of the entry that is there; --overwrite replaces it")
    if is_better(new, old):
        return Change(key, "replace", new.kind, better_why(new, old))
    if new.is_predicted and not old.is_predicted:
        return Change(key, "keep", old.kind, "it was measured, and the new one predicted")
    if old.verified != new.verified:
        return Change(key, "keep", old.kind, "it was checked on a GPU, and the new one was not")
    return Change(key, "keep", old.kind, f"it is not slower: {time_text(old)}, the new one {time_text(new)}")


def is_better(one: Note, other: Note) -> bool:
    """Whether an entry is preferred to another one of the same key."""
    if (one.kind in MEASURED_KINDS) != (other.kind in MEASURED_KINDS):
        return one.kind in MEASURED_KINDS
    if one.is_predicted != other.is_predicted:
        return other.is_predicted
    if one.verified != other.verified:
        return one.verified
    if one.m != other.m:
        return one.m > other.m
    return one.time_us is not None and (other.time_us is None or one.time_us < other.time_us)


def better_why(new: Note, old: Note) -> str:
    if old.kind not in MEASURED_KINDS:
        return "the old entry was a filling"
    if old.is_predicted and not new.is_predicted:
        return "the old entry was predicted"
    if new.verified != old.verified:
        return "the old entry was not checked on a GPU"
    return f"measured at M={new.m}, not {old.m}" if new.m != old.m else f"{time_text(old)} -> {time_text(new)}"


def time_text(note: Note) -> str:
    return "no time known" if note.time_us is None else f"{note.time_us:.2f} us"


def note_of(offer: Offer, entry: Entry, results: str) -> Note:
    return Note(
        kind=TUNED if offer.stage in (RESULTS, SERVED) else TABLE,
        entry=entry,
        m=offer.problem.m,
        name=offer.config.name,
        time_us=offer.time_us,
        stage=offer.stage,
        source=offer.source,
        verified=offer.verified is Verified.TRUE,
        default_us=offer.facts.get("default_us") if offer.stage == SERVED else None,
        check="" if offer.verified is Verified.TRUE else offer.verified.value,
        results=results,
    )


def timed_sizes(offers: Iterable[Offer], notes: dict[str, Note], old: dict[str, Timed]) -> dict[str, Timed]:
    """The times at each M of the configurations in a file. Of two tuned configurations for one M the faster is kept."""
    names = {note.name for note in notes.values()}
    sizes = dict(old)
    firsts: dict[str, Offer] = {}
    for offer in offers:
        firsts.setdefault(str(offer.problem.m), offer)
    for m, offer in firsts.items():
        times = {name: us for name, us in offer.timings.items() if name in names}
        if offer.time_us is not None and offer.config.name in names:
            times[offer.config.name] = offer.time_us
        new, before = Timed(offer.tuned, offer.tuned_us, times), old.get(m)
        if before is not None and (new.tuned_us is None or (before.tuned_us or math.inf) < new.tuned_us):
            new = replace(before, times_us={**times, **before.times_us})
        elif before is not None:
            new = replace(new, times_us={**before.times_us, **times})
        sizes[m] = replace(new, times_us={name: us for name, us in sorted(new.times_us.items()) if name in names})
    return dict(sorted(sizes.items(), key=lambda item: int(item[0]) if item[0].isdecimal() else 0))


def write(root: Path, plans: Iterable[FilePlan], known: dict[PurePosixPath, Sidecar], results: dict[str, Any]) -> None:
    """Writes the changed files, each atomically, then the provenance of each folder.

    results: the entry of Sidecar.results for this export, by the hash of the results file.
    """
    folders: dict[PurePosixPath, list[FilePlan]] = {}
    for plan in plans:
        folders.setdefault(plan.place.parent, []).append(plan)
    for folder, ours in folders.items():
        try:
            (root / folder).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise EnvironmentFault(
                f"cannot make this folder: {error.strerror}", where=printable(root / folder)
            ) from error
        side = known[folder]
        for plan in ours:
            if plan.differs:
                write_text_atomically(root / plan.place, plan.text)
            side.files[plan.place.name] = plan.notes
            if plan.untold:
                side.untold[plan.place.name] = plan.untold
            if plan.sizes:
                side.sizes[plan.place.name] = plan.sizes
        side.results.update(results)
        used = {note.results for notes in side.files.values() for note in notes.values()} | set(results)
        side.results = {sha: facts for sha, facts in side.results.items() if sha in used}
        sidecar.write(root / folder, side)

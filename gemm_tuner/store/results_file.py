"""Writes a run's results file while the run proceeds, merging its rows by problem with those already in the file.

No row is lost: an existing row stays until this run has a new one for the same problem. The rows of this run are safe
in its store. The file is rewritten at most every few seconds, so that the cost per finished size does not grow with
their number.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import os
import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gemm_tuner.consumers.consumer_kernel import measured
from gemm_tuner.core.choice import Choice
from gemm_tuner.core.errors import UserError
from gemm_tuner.core.records import Problem, Verified
from gemm_tuner.store import results
from gemm_tuner.store.results import Header, Row
from gemm_tuner.store.served import with_stand_in
from gemm_tuner.store.substitutes import KEY as SUBSTITUTE_KEY
from gemm_tuner.system.documents import load_yaml
from gemm_tuner.system.input_files import printable

# Least time between two writes: this many seconds, and this many times the duration of the last write.
WRITE_EVERY_S = 5.0
WRITE_SHARE = 20
OTHER_FILE = "choose another file to write, or move this one away"

Rows = Mapping[Problem, dict[str, Any]]


@dataclass(frozen=True)
class Judgement:
    """What a run found out about an earlier row of a problem.

    wrong: configurations that it found wrong or unstable: name -> reason.
    asked: the servers for which it searched the best configuration.
    """

    wrong: Mapping[str, str] = field(default_factory=dict)
    asked: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Earlier:
    """The content of a results file before this run: the first row of each problem, raw (``rows``) and decoded
    (``read``)."""

    header: dict[str, Any] = field(default_factory=dict)
    rows: Rows = field(default_factory=dict)
    read: Mapping[Problem, Row] = field(default_factory=dict)
    failures: Mapping[Problem, str] = field(default_factory=dict)
    headers: tuple[dict[str, Any], ...] = ()

    def date_of(self, row: Row) -> str:
        """The date of the run that a row is from; no two runs of a file have the same."""
        return str(row.facts.get("kept_from", self.header.get("date", "")))


def read_earlier(path: Path) -> Earlier:
    """The rows of a results file that a run will write to; none for a missing or empty file.

    Raises UserError for a file that is not a results file, because it would be overwritten.
    """
    if not path.exists() or (path.is_file() and path.stat().st_size == 0):
        return Earlier()
    try:
        found = results.read(path)
        raw: Any = load_yaml(path, "results file")
    except UserError as error:
        what = f"is there already and cannot be merged with: {error.one_line()}"
        raise UserError(what, where=printable(path), hint=OTHER_FILE) from error
    rows: dict[Problem, dict[str, Any]] = {}
    read: dict[Problem, Row] = {}
    for row, item in zip(found.rows, raw["configs"], strict=True):
        read.setdefault(row.problem, row)
        # Converted to this version's format; older formats say less about how a row was checked.
        rows.setdefault(row.problem, {**item, **({"verified": row.verified.scalar} if "verified" in item else {})})
    return Earlier(found.header, rows, read, dict(found.without_config), found.earlier_headers)


def require_same_device(path: Path, earlier: Earlier, name: str, arch: str) -> None:
    """Raises UserError if the file's rows are from another GPU, because a file has one header."""
    header = earlier.header
    if not earlier.rows:
        return
    theirs = (header.get("device", ""), header.get("arch", ""))
    mine = (name, arch)
    if theirs != mine:
        raise UserError(
            f"holds rows of {theirs[0]} ({theirs[1]}) and this run is for {mine[0]} ({mine[1]})",
            where=printable(path),
            accepted="a results file of one GPU model",
            hint=OTHER_FILE,
        )


def require_none_lost(path: Path, problems: Iterable[Problem]) -> None:
    """Raises UserError if writing the file anew, without merging, would lose rows of other problems."""
    earlier = read_earlier(path)
    lost = set(earlier.rows) - set(problems)
    if lost:
        what = f"holds rows of {len(lost)} other sizes, which would be lost"
        raise UserError(what, where=printable(path), hint="choose another file for --output")


def replaces(new: Mapping[str, Any], old: Mapping[str, Any] | None) -> bool:
    """Whether a new row replaces an older one; a predicted row does not replace a measured one."""
    return old is None or new.get("source") != "predicted" or old.get("source") in (None, "predicted")


def with_served(new: dict[str, Any], old: Mapping[str, Any] | None, asked: Container[str], date: str) -> dict[str, Any]:
    """A new row, with entries of the older row for consumers that are not among this run's --serve.

    date: of the run that wrote the older row, unless the row has a date.
    """
    if old is None:
        return new
    since = old.get("kept_from", date)
    others = {
        name: {**one, "kept_from": one.get("kept_from", since)}
        for name, one in old.get("served", {}).items()
        if name not in asked and name not in new.get("served", {})
    }
    return {**new, **with_stand_in({**others, **new.get("served", {})})} if others else new


def without_wrong(old: dict[str, Any], read: Row, wrong: Mapping[str, str]) -> dict[str, Any]:
    """An earlier row, updated with this run's findings. wrong: reason by configuration.

    A row whose configuration is wrong becomes unverified, with the reason; a wrong entry for a server and a wrong
    substitute are removed.
    """
    row = dict(old)
    if read.config is not None and read.config.name in wrong:
        row |= {"verified": Verified.FALSE.scalar, "found_wrong": wrong[read.config.name] or "no message"}
    gone = {one.consumer for one in read.served if measured(one).name in wrong}
    if gone:
        left = {name: one for name, one in row.pop("served").items() if name not in gone}
        row.pop("stand_in", None)
        row |= with_stand_in(left) if left else {}
    if read.substitute is not None and read.substitute.config.name in wrong:
        del row[SUBSTITUTE_KEY]
    return row


def judged(earlier: Earlier, judgements: Mapping[Problem, Judgement], source: str) -> Rows:
    """The earlier rows, updated with this run's findings. source: of this run; a check in the interpreter does not
    change a row that was checked on a GPU."""
    return {
        problem: without_wrong(row, earlier.read[problem], judgements[problem].wrong)
        if problem in judgements and (source != "predicted" or row.get("source") == "predicted")
        else row
        for problem, row in earlier.rows.items()
    }


def merge(
    earlier: Earlier,
    header: dict[str, Any],
    order: Sequence[Problem],
    rows: Rows,
    failed: Mapping[Problem, str],
    judgements: Mapping[Problem, Judgement],
) -> dict[str, Any]:
    """The content of a results file: the earlier rows, replaced by this run's rows for the same problems.

    order: this run's problems. They fill the places that any of them had in the file, in this order; the rest is
    appended. Rows that stay get the date of their run (kept_from), whose header is kept. If this run has no row,
    the file's header stays.
    judgements: this run's findings about the earlier rows.
    """
    old = judged(earlier, judgements, header["source"])
    new = {problem: rows[problem] for problem in order if problem in rows}
    date = str(earlier.header.get("date", ""))
    new = {
        problem: with_served(row, old.get(problem), judgements[problem].asked, date)
        for problem, row in new.items()
        if replaces(row, old.get(problem))
    }
    kept = {p: row for p, row in old.items() if p not in new}
    if new:
        kept = {p: {**row, "kept_from": row.get("kept_from", date)} for p, row in kept.items()}
    mine = [problem for problem in order if problem in new or problem in kept]
    ordered = set(order)
    turns = iter(mine)
    places = [next(turns) if problem in ordered else problem for problem in earlier.rows] + list(turns)
    written = [new[problem] if problem in new else kept[problem] for problem in places]
    dates = {one.get("kept_from") for row in written for one in (row, *row.get("served", {}).values())}
    headers = {str(one.get("date", "")): one for one in (*earlier.headers, earlier.header)}
    reasons = {**{p: why for p, why in earlier.failures.items() if p not in ordered}, **failed}
    return {
        "header": header if new or not kept else earlier.header,
        "rows": written,
        "failures": [(problem, why) for problem, why in reasons.items() if problem not in new and problem not in kept],
        "earlier_headers": [one for date, one in headers.items() if date in dates],
    }


class ResultsFile:
    """The results file at ``path`` during a run. order: the run's problems.

    Not thread-safe. Several processes may write to the same path; each merges the rows of the others.
    """

    def __init__(self, path: Path, order: Iterable[Problem], clock: Callable[[], float] = time.monotonic) -> None:
        """Raises UserError if the file exists and is not a results file."""
        self.path, self._order, self._clock = path, tuple(order), clock
        self.earlier = read_earlier(path)
        self._seen = _state(path)
        self._rows: dict[Problem, dict[str, Any]] = {}
        self._failed: dict[Problem, str] = {}
        self._judgements: dict[Problem, Judgement] = {}
        self._is_behind, self._next_write = False, -float("inf")

    def record_outcome(
        self, problem: Problem, choice: Choice | None, reason: str = "", judgement: Judgement | None = None
    ) -> None:
        """Adds the outcome of a size. Raises ValueError for a choice that cannot be written as a row."""
        self._judgements[problem] = judgement or Judgement()
        if choice is not None:
            self._rows[problem] = results.choice_row(choice)
        else:
            self._failed[problem] = reason
        self._is_behind = True

    def write_when_due(self, header: Header) -> None:
        """Writes the file if the last write was long enough ago."""
        if self._clock() >= self._next_write:
            self.write(header)

    def write(self, header: Header) -> None:
        """Writes rows that the file does not have yet. Raises EnvironmentFault if it cannot be written, and UserError
        if it has meanwhile been replaced by another GPU's, or by something that is not a results file."""
        if not self._is_behind:
            return
        begun = self._clock()
        with _alone_in(self.path.resolve().parent):
            if _state(self.path) != self._seen:
                earlier = read_earlier(self.path)
                require_same_device(self.path, earlier, header.device, header.arch)
                self.earlier = earlier
            parts = merge(
                self.earlier, dataclasses.asdict(header), self._order, self._rows, self._failed, self._judgements
            )
            results.write_rows(self.path, **parts)
            self._seen = _state(self.path)
        self._is_behind = False
        ended = self._clock()
        self._next_write = ended + max(WRITE_EVERY_S, WRITE_SHARE * (ended - begun))

    def kept_instead(self) -> dict[Problem, str]:
        """The sizes of this run whose earlier row stays, with the reason."""
        kept = {problem: reason for problem, reason in self._failed.items() if problem in self.earlier.rows}
        for problem, row in self._rows.items():
            if not replaces(row, self.earlier.rows.get(problem)):
                kept[problem] = "it was timed, and this run has a prediction only"
        return kept

    def merged_text(self) -> str:
        """How this run's rows and those that the file had before were merged, in words; "" for a file without rows."""
        old = self.earlier.rows
        mine = [problem for problem, row in self._rows.items() if replaces(row, old.get(problem))]
        anew = sum(problem in old for problem in mine)
        counts = {"new": len(mine) - anew, "written anew": anew, "kept": len(old) - anew}
        return "rows: " + ", ".join(f"{count} {what}" for what, count in counts.items() if count) if old else ""


def _state(path: Path) -> tuple[int, int, int] | None:
    """Inode, modification time (ns) and size (bytes) of the file, to detect changes."""
    with contextlib.suppress(OSError):
        found = path.stat()
        return found.st_ino, found.st_mtime_ns, found.st_size
    return None


@contextlib.contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Holds an advisory lock on a folder, if the file system supports it; filelock would leave a file in it."""
    try:
        held = os.open(folder, os.O_RDONLY)
    except OSError:
        yield
        return
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(held, fcntl.LOCK_EX)
        yield
    finally:
        os.close(held)

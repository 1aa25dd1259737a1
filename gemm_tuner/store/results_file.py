"""The results file of a run while it grows: rows are merged by problem with those that are in it already.

No row is lost: what the file held stays until this run has a new row for the same problem. The rows of this run are in
its store; the file is replaced at most every few seconds, so that settling a size costs the same however many
there are.
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

from gemm_tuner.core.choice import Choice
from gemm_tuner.core.errors import UserError
from gemm_tuner.core.records import Problem, Verified
from gemm_tuner.gemm.served import measured, with_stand_in
from gemm_tuner.store import results
from gemm_tuner.store.results import Header, Row
from gemm_tuner.system.documents import load_yaml
from gemm_tuner.system.input_files import printable

# Between two writes lie at least this many seconds, and at least this many times what the last one took.
WRITE_EVERY_S = 5.0
WRITE_SHARE = 20
OTHER_FILE = "choose another file to write, or move this one away"

Rows = Mapping[Problem, dict[str, Any]]


@dataclass(frozen=True)
class Judgement:
    """What a run says of an earlier row of a problem.

    wrong: why, by name, of configurations that it found wrong or unstable.
    asked: the servers whose best configuration it looked for.
    """

    wrong: Mapping[str, str] = field(default_factory=dict)
    asked: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Earlier:
    """What a results file held before this run: the first row of each problem, as it stands in the file and as read."""

    header: dict[str, Any] = field(default_factory=dict)
    rows: Rows = field(default_factory=dict)
    read: Mapping[Problem, Row] = field(default_factory=dict)
    failures: Mapping[Problem, str] = field(default_factory=dict)
    headers: tuple[dict[str, Any], ...] = ()


def read_earlier(path: Path) -> Earlier:
    """The rows of a results file that a run will write to; none where there is no file or an empty one.

    Raises UserError for a file that is no results file: it would be lost.
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
        # As this version writes it: an older format says less of how a row was checked.
        rows.setdefault(row.problem, {**item, **({"verified": row.verified.scalar} if "verified" in item else {})})
    return Earlier(found.header, rows, read, dict(found.without_config), found.earlier_headers)


def require_same_device(path: Path, earlier: Earlier, name: str, arch: str) -> None:
    """Raises UserError when the file's rows are of another GPU: one header cannot stand for both."""
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
    """For a file that is not merged but written anew. Raises UserError where rows of other problems would be
    lost."""
    earlier = read_earlier(path)
    lost = set(earlier.rows) - set(problems)
    if lost:
        what = f"holds rows of {len(lost)} other sizes, which would be lost"
        raise UserError(what, where=printable(path), hint="choose another file for --output")


def replaces(new: Mapping[str, Any], old: Mapping[str, Any] | None) -> bool:
    """Whether a row takes the place of an older one: a prediction does not take that of a time."""
    return old is None or new.get("source") != "predicted" or old.get("source") in (None, "predicted")


def with_served(new: dict[str, Any], old: Mapping[str, Any] | None, asked: Container[str], date: str) -> dict[str, Any]:
    """A row with what an older one of the same problem served to consumers that this run was not asked about.

    date: of the run that the older row is from, unless it says otherwise.
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
    """An earlier row with what this run found of its configurations. wrong: why, by configuration.

    A row whose configuration is wrong becomes unverified and says why; a server's wrong entry is removed.
    """
    row = dict(old)
    if read.config is not None and read.config.name in wrong:
        row |= {"verified": Verified.FALSE.scalar, "found_wrong": wrong[read.config.name] or "no message"}
    gone = {one.consumer for one in read.served if measured(one).name in wrong}
    if gone:
        left = {name: one for name, one in row.pop("served").items() if name not in gone}
        row.pop("stand_in", None)
        row |= with_stand_in(left) if left else {}
    return row


def judged(earlier: Earlier, judgements: Mapping[Problem, Judgement], source: str) -> Rows:
    """The earlier rows with what this run found of them. source: of this run; what the interpreter says of a row that
    was checked on a GPU changes nothing."""
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
    """The parts of a results file: earlier rows, each replaced by this run's for the same problem.

    order: this run's problems. They take the places that any of them have in the file, in this order, and the rest
    follows at the end. A row that stays says when it was found (kept_from), and the header of that date is kept.
    Where this run has no row to give, the file's header stays that of its rows.
    judgements: what this run says of the earlier rows.
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
    """``path`` while a run settles its sizes. ``order``: the run's problems.

    Not for several threads. Another process may write to the same path: each merges what the other has written.
    """

    def __init__(self, path: Path, order: Iterable[Problem], clock: Callable[[], float] = time.monotonic) -> None:
        """Raises UserError for a file that is there and is no results file."""
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
        """Takes a size's outcome. Raises ValueError for a choice that no row can hold."""
        self._judgements[problem] = judgement or Judgement()
        if choice is not None:
            self._rows[problem] = results.choice_row(choice)
        else:
            self._failed[problem] = reason
        self._is_behind = True

    def write_when_due(self, header: Header) -> None:
        """Writes if the last time is long enough ago."""
        if self._clock() >= self._next_write:
            self.write(header)

    def write(self, header: Header) -> None:
        """Writes what the file lacks. Raises EnvironmentFault when it cannot be written, UserError when it has become
        one of another GPU meanwhile, or no results file."""
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
        """The sizes of this run whose earlier row stays, and why."""
        kept = {problem: reason for problem, reason in self._failed.items() if problem in self.earlier.rows}
        for problem, row in self._rows.items():
            if not replaces(row, self.earlier.rows.get(problem)):
                kept[problem] = "it was timed, and this run has a prediction only"
        return kept


def _state(path: Path) -> tuple[int, int, int] | None:
    """Inode, time of change (ns) and size (bytes) of the file at a path, which differ for another one."""
    with contextlib.suppress(OSError):
        found = path.stat()
        return found.st_ino, found.st_mtime_ns, found.st_size
    return None


@contextlib.contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Holds an advisory lock on a folder, where the file system has such locks."""
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

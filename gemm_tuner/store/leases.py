"""Who works on what: each item of work is leased to one worker at a time, and finished once.

A lease holds until a time by which the worker must be heard of again. One that is silent for longer, or is known to be
dead, loses its leases, and its items are leased again, with another attempt number. What comes late from a lease that
was lost still counts if the item is open: a result is a result. It finishes nothing twice.

The table lies in the run's SQLite, and its only writer is the process that the run was started in. Times are handed in,
from a clock that never goes back, so that a simulation on virtual time runs this code.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

SCHEMA = """
CREATE TABLE IF NOT EXISTS items (
    item TEXT PRIMARY KEY, state TEXT NOT NULL, attempts INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS leases (
    item TEXT, attempt INTEGER, worker TEXT NOT NULL, node TEXT NOT NULL, until_s REAL NOT NULL, state TEXT NOT NULL,
    PRIMARY KEY (item, attempt));
CREATE INDEX IF NOT EXISTS leases_of_worker ON leases (state, worker);
"""
OPEN, LEASED, FINISHED = "open", "leased", "finished"
HELD, LOST, DONE, LATE = "held", "lost", "done", "late"

# A worker is heard of twice in this time.
BEAT_S = 10.0
# One that was not heard of for so long has lost its leases.
HOLD_S = 3 * BEAT_S


@dataclass(frozen=True, slots=True)
class Lease:
    """attempt: counts the leases of the item, from 1. node: the machine that the worker is on."""

    item: str
    attempt: int
    worker: str
    node: str


@dataclass
class Leases:
    """The table in an open database. All methods may be called from any thread, and return when they are committed.

    lock: of those who use the database. fault: what is raised for an error of the database.
    """

    base: sqlite3.Connection
    lock: threading.RLock = field(default_factory=threading.RLock)
    hold_s: float = HOLD_S
    fault: Callable[[sqlite3.DatabaseError], Exception] = lambda error: error

    def __post_init__(self) -> None:
        with self._opened():
            self.base.executescript(SCHEMA)

    @contextmanager
    def _opened(self) -> Iterator[None]:
        """A transaction."""
        try:
            with self.lock, self.base:
                yield
        except sqlite3.DatabaseError as error:
            raise self.fault(error) from error

    @classmethod
    def in_memory(cls) -> Leases:
        return cls(sqlite3.connect(":memory:", check_same_thread=False))

    def begin_again(self) -> None:
        """All leases of an earlier process of the run are lost: nothing holds them any more."""
        with self._opened():
            self.base.execute("UPDATE leases SET state = ? WHERE state = ?", (LOST, HELD))
            self.base.execute("UPDATE items SET state = ? WHERE state = ?", (OPEN, LEASED))

    def offer(self, names: Iterable[str]) -> None:
        """Adds items; those that are there, finished ones too, stay as they are."""
        rows = [(name, OPEN) for name in names]
        with self._opened():
            self.base.executemany("INSERT OR IGNORE INTO items VALUES (?, ?, 0)", rows)

    def take(self, names: Iterable[str], worker: str, node: str, now_s: float) -> list[Lease]:
        """Leases those of the named items that are open."""
        query = "SELECT item FROM items WHERE item = ? AND state = ?"
        with self._opened():
            is_open = [name for name in names if self.base.execute(query, (name, OPEN)).fetchone()]
            return self._lease(is_open, worker, node, now_s)

    def _lease(self, names: Sequence[str], worker: str, node: str, now_s: float) -> list[Lease]:
        update = "UPDATE items SET state = ?, attempts = attempts + 1 WHERE item = ? RETURNING attempts"
        attempts = [int(self.base.execute(update, (LEASED, name)).fetchall()[0][0]) for name in names]
        leases = [Lease(name, attempt, worker, node) for name, attempt in zip(names, attempts, strict=True)]
        rows = [(one.item, one.attempt, worker, node, now_s + self.hold_s, HELD) for one in leases]
        self.base.executemany("INSERT INTO leases VALUES (?, ?, ?, ?, ?, ?)", rows)
        return leases

    def beat(self, worker: str, now_s: float) -> None:
        """Renews what a worker holds."""
        with self._opened():
            statement = "UPDATE leases SET until_s = ? WHERE state = ? AND worker = ?"
            self.base.execute(statement, (now_s + self.hold_s, HELD, worker))

    def are_held(self, leases: Sequence[Lease], now_s: float) -> bool:
        """Whether a worker has not been silent for too long for these of its leases. What it has lost so stays lost."""
        for worker in {lease.worker for lease in leases}:
            self._lose("worker = ? AND until_s < ?", worker, now_s)
        query = "SELECT COUNT(*) FROM leases WHERE item = ? AND attempt = ? AND state = ?"
        with self._opened():
            return all(self.base.execute(query, (one.item, one.attempt, LOST)).fetchone() == (0,) for one in leases)

    def lose(self, worker: str) -> list[Lease]:
        """A worker is dead: it loses all that it holds."""
        return self._lose("worker = ?", worker)

    def give_up(self, leases: Iterable[Lease]) -> None:
        """A worker will not finish these; what of them it holds no longer stays as it is."""
        for lease in leases:
            self._lose("item = ? AND attempt = ?", lease.item, lease.attempt)

    def _lose(self, condition: str, *values: float | str) -> list[Lease]:
        statement = f"UPDATE leases SET state = ? WHERE state = ? AND {condition} RETURNING item, attempt, worker, node"
        with self._opened():
            lost = [Lease(*row) for row in self.base.execute(statement, (LOST, HELD, *values)).fetchall()]
            rows = [(OPEN, one.item, LEASED) for one in lost]
            self.base.executemany("UPDATE items SET state = ? WHERE item = ? AND state = ?", rows)
            return lost

    def finish(self, lease: Lease) -> bool:
        """Notes that a result has come. False where the item was finished before: the result changes nothing."""
        return self.finish_all([lease])[0]

    def finish_all(self, leases: Sequence[Lease]) -> list[bool]:
        """``finish`` of each, in one transaction."""
        with self._opened():
            return [self._finish(one) for one in leases]

    def _finish(self, lease: Lease) -> bool:
        change = "UPDATE items SET state = ? WHERE item = ? AND state != ?"
        first = self.base.execute(change, (FINISHED, lease.item, FINISHED)).rowcount == 1
        mine = (DONE if first else LATE, lease.item, lease.attempt)
        self.base.execute("UPDATE leases SET state = ? WHERE item = ? AND attempt = ?", mine)
        if first:  # another worker may be at it since this one was given up
            others = (LOST, lease.item, HELD)
            self.base.execute("UPDATE leases SET state = ? WHERE item = ? AND state = ?", others)
        return first

    def reopen(self, names: Iterable[str]) -> None:
        """Finished items are to be done again."""
        with self._opened():
            rows = [(OPEN, name, FINISHED) for name in names]
            self.base.executemany("UPDATE items SET state = ? WHERE item = ? AND state = ?", rows)

    def times_lost(self, item: str) -> int:
        """On how many machines the item was when it was lost."""
        query = "SELECT COUNT(DISTINCT node) FROM leases WHERE item = ? AND state = ?"
        with self._opened():
            return int(self.base.execute(query, (item, LOST)).fetchone()[0])

    def counts(self) -> dict[str, int]:
        """How many items are in each state."""
        with self._opened():
            return dict(self.base.execute("SELECT state, COUNT(*) FROM items GROUP BY state").fetchall())

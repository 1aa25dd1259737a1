"""Stores the results of a run as soon as they are known, in ``run.sqlite`` (SQLite in WAL mode) in the run's folder.

If the process is killed at any moment, the store has everything up to the last commit.
"""

from __future__ import annotations

import json
import sqlite3
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gemm_tuner.core.errors import FREE_SPACE, CannotWrite
from gemm_tuner.core.records import CompileResult, Problem, Role, Status, Timing, Verdict, Verified
from gemm_tuner.core.workload import problem_from_dict
from gemm_tuner.store.leases import Leases

STORE_FILE = "run.sqlite"
FORMAT_VERSION = "5"
# Name of a fact: the number of kernels that the run has requested so far.
KERNELS_WANTED = "kernels wanted"

# (Script.kernel_sha, kernel symbol, specialization) identifies a binary.
BinaryKey = tuple[str, str, str]

SCHEMA = """
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS compiles (
    source TEXT, symbol TEXT, specialization TEXT, result TEXT NOT NULL, PRIMARY KEY (source, symbol, specialization));
CREATE TABLE IF NOT EXISTS timings (
    id INTEGER PRIMARY KEY, size TEXT, name TEXT, stage TEXT, status TEXT, message TEXT, samples_us TEXT,
    gpu TEXT NOT NULL, process INTEGER NOT NULL, role TEXT NOT NULL, kernels_us TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS timings_of_size ON timings (size, stage);
CREATE TABLE IF NOT EXISTS begun (size TEXT, name TEXT, times INTEGER, PRIMARY KEY (size, name));
CREATE TABLE IF NOT EXISTS verdicts (id INTEGER PRIMARY KEY, size TEXT, name TEXT, verdict TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS failures (size TEXT, name TEXT, status TEXT, message TEXT, PRIMARY KEY (size, name));
CREATE TABLE IF NOT EXISTS states (size TEXT PRIMARY KEY, rows TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS finished (size TEXT PRIMARY KEY, name TEXT, reason TEXT);
"""


# In SQLite's messages if another process is writing to the store, and if the file is damaged.
LOCKED = ("locked", "busy")
DAMAGED = ("malformed", "not a database", "no such table", "no such column", "decode")
START_ANEW = "--fresh starts a new run; compiled kernels and the results file are not lost"


class StoreFault(CannotWrite):
    """The store cannot be read or written; neither a GPU nor a configuration is at fault."""


def fault_of(error: Exception, path: Path) -> StoreFault:
    """The StoreFault for an error of SQLite, or for a row that cannot be decoded."""
    words = str(error)
    if isinstance(error, sqlite3.OperationalError) and any(word in words for word in LOCKED):
        hint = "end that process or wait for it, then start the same command again: it goes on where it was"
        return StoreFault(f"another process has it open ({words})", where=str(path), hint=hint)
    if isinstance(error, sqlite3.OperationalError) and not any(word in words for word in DAMAGED):
        return StoreFault(f"cannot be written: {words}", where=str(path), hint=FREE_SPACE)
    return StoreFault(f"is damaged, or no run's store ({words})", where=str(path), hint=START_ANEW)


class Store:
    """The store of a run. All methods are thread-safe, and return after their rows are committed.

    All raise StoreFault if the store is damaged, locked by another process, or cannot be written. It is closed by
    ``close``, else when the last reference is gone.
    """

    def __init__(self, path: Path, wait_s: float = 30.0) -> None:
        """Opens or creates the store. wait_s: time to wait for another process's lock, seconds."""
        self.path = path
        self._lock = threading.RLock()
        try:
            self._base = sqlite3.connect(path, check_same_thread=False, timeout=wait_s)
            weakref.finalize(
                self, self._base.close
            )  # registered first, so that it is also closed if reading fails below
            self._base.execute("PRAGMA journal_mode=WAL")
            # A commit survives a kill of the process; a crash of the machine can lose the last commits.
            self._base.execute("PRAGMA synchronous=NORMAL")
            with self._base:
                self._base.executescript(SCHEMA)
            self.leases = Leases(self._base, self._lock, fault=lambda error: fault_of(error, path))
        except sqlite3.DatabaseError as error:
            raise fault_of(error, path) from error
        if self.fact("format", FORMAT_VERSION) != FORMAT_VERSION:
            raise StoreFault("is of another version", where=str(path), hint=START_ANEW)
        self.set_fact("format", FORMAT_VERSION)

    def close(self) -> None:
        with self._lock:
            self._base.close()

    def _write(self, statement: str, rows: Iterable[tuple[Any, ...]]) -> None:
        try:
            with self._lock, self._base:
                self._base.executemany(statement, rows)
        except sqlite3.DatabaseError as error:
            raise fault_of(error, self.path) from error

    def _rows(
        self, query: str, values: tuple[Any, ...] = (), decode: Callable[..., Any] = lambda *row: row
    ) -> list[Any]:
        """The decoded rows. decode: called with the columns of each row; an error in it means a damaged row."""
        try:
            with self._lock:
                rows = self._base.execute(query, values).fetchall()
            return [decode(*row) for row in rows]
        except (sqlite3.DatabaseError, ValueError, TypeError, KeyError, IndexError) as error:
            raise fault_of(error, self.path) from error

    def set_fact(self, name: str, value: Any) -> None:
        """Sets a fact, a JSON value such as the run's fingerprint or state."""
        self._write("INSERT OR REPLACE INTO facts VALUES (?, ?)", [(name, json.dumps(value))])

    def drop_fact(self, name: str) -> None:
        self._write("DELETE FROM facts WHERE name = ?", [(name,)])

    def fact(self, name: str, default: Any = None) -> Any:
        values = self._rows("SELECT value FROM facts WHERE name = ?", (name,), json.loads)
        return values[0] if values else default

    def add_compiles(self, results: Mapping[BinaryKey, CompileResult], cache: str = "") -> None:
        """Adds compile results. cache: identity of the cache folder that contains the binaries."""
        rows = [(*key, json.dumps({**asdict(result), "cache": cache})) for key, result in results.items()]
        self._write("INSERT OR REPLACE INTO compiles VALUES (?, ?, ?, ?)", rows)

    def num_compiles(self) -> int:
        """Number of kernels that were compiled or failed to compile."""
        return int(self._rows("SELECT COUNT(*) FROM compiles")[0][0])

    def is_empty(self) -> bool:
        """Whether nothing was compiled, timed, checked or decided yet."""
        tables = ("compiles", "timings", "verdicts", "failures", "finished")
        return not any(self._rows(f"SELECT 1 FROM {table} LIMIT 1") for table in tables)

    def compiles(self, cache: str | None = None) -> dict[BinaryKey, CompileResult]:
        """Compile results: all of them, or with ``cache`` those that need not be compiled again: binaries in this
        cache, and failures."""

        def decode(source: str, symbol: str, specialization: str, text: str) -> tuple[BinaryKey, str, CompileResult]:
            row = json.loads(text)
            home = row.pop("cache", "")
            row |= {"status": Status(row["status"]), "entries": tuple(row.get("entries", ()))}
            return (source, symbol, specialization), home, CompileResult(**row)

        rows = self._rows("SELECT * FROM compiles", decode=decode)
        return {key: one for key, home, one in rows if cache in (None, home) or one.status != Status.OK}

    def add_timings(
        self, timings: Iterable[Timing], stage: str, gpu_of: Callable[[Problem], str] = lambda _: ""
    ) -> None:
        """Adds timings of a stage, in order. gpu_of: the label of the GPU that times a size."""
        rows = [
            (
                *(t.problem.key, t.name, stage, t.status.value, t.message),
                *(json.dumps(t.samples_us), gpu_of(t.problem), t.process, t.role.value, json.dumps(t.kernels_us)),
            )
            for t in timings
        ]
        columns = "size, name, stage, status, message, samples_us, gpu, process, role, kernels_us"
        self._write(f"INSERT INTO timings ({columns}) VALUES ({', '.join('?' * 10)})", rows)

    def timed_on(self, problem: Problem, stage: str) -> dict[str, int]:
        """Number of timings of a size's stage by GPU."""
        query = "SELECT gpu, COUNT(*) FROM timings WHERE size = ? AND stage = ? GROUP BY gpu ORDER BY gpu"
        return dict(self._rows(query, (problem.key, stage)))

    def drop_other_gpus(self, problem: Problem, stage: str, but: str) -> None:
        """Deletes the timings of a size's stage that are not from the GPU ``but``."""
        statement = "DELETE FROM timings WHERE size = ? AND stage = ? AND gpu != ?"
        self._write(statement, [(problem.key, stage, but)])

    def timings(self, problem: Problem, stage: str) -> list[Timing]:
        """The timings of a size's stage, in the order they were added."""

        def decode(name: str, status: str, message: str, samples: str, process: int, role: str, kernels: str) -> Timing:
            of = tuple(json.loads(samples)), message, process, Role(role), tuple(json.loads(kernels))
            return Timing(problem, name, Status(status), *of)

        columns = "name, status, message, samples_us, process, role, kernels_us"
        query = f"SELECT {columns} FROM timings WHERE size = ? AND stage = ? ORDER BY id"
        return self._rows(query, (problem.key, stage), decode)

    def drop_process(self, problem: Problem, stage: str, process: int) -> None:
        """Deletes the timings of a size from one process."""
        statement = "DELETE FROM timings WHERE size = ? AND stage = ? AND process = ?"
        self._write(statement, [(problem.key, stage, process)])

    def set_role(self, problem: Problem, stage: str, role: Role, process: int) -> None:
        """Sets the role of a process of a size."""
        statement = "UPDATE timings SET role = ? WHERE size = ? AND stage = ? AND process = ?"
        self._write(statement, [(role, problem.key, stage, process)])

    def drop_checks(self, problem: Problem) -> None:
        """Deletes the verdicts and failures of a size."""
        self._write("DELETE FROM verdicts WHERE size = ?", [(problem.key,)])
        self._write("DELETE FROM failures WHERE size = ?", [(problem.key,)])

    def add_begun(self, running: Iterable[tuple[str, str]]) -> None:
        """Counts these (size, configuration) as running when a process of the run was killed."""
        statement = "INSERT INTO begun VALUES (?, ?, 1) ON CONFLICT DO UPDATE SET times = times + 1"
        self._write(statement, running)

    def begun(self, problem: Problem) -> dict[str, int]:
        """How often each configuration was running when a process of the run was killed."""
        return dict(self._rows("SELECT name, times FROM begun WHERE size = ?", (problem.key,)))

    def add_verdict(self, problem: Problem, verdict: Verdict) -> None:
        row = {**asdict(verdict), "problem": verdict.problem.to_dict()}
        statement = "INSERT INTO verdicts (size, name, verdict) VALUES (?, ?, ?)"
        self._write(statement, [(problem.key, verdict.name, json.dumps(row))])

    def verdicts(self, problem: Problem, name: str) -> list[Verdict]:
        def decode(text: str) -> Verdict:
            row = json.loads(text)
            row |= {"problem": problem_from_dict(row["problem"]), "worst_element": tuple(row["worst_element"])}
            return Verdict(**{**row, "how": Verified(row["how"]) if row.get("how") else None})

        query = "SELECT verdict FROM verdicts WHERE size = ? AND name = ? ORDER BY id"
        return self._rows(query, (problem.key, name), decode)

    def add_failure(self, problem: Problem, name: str, status: Status, message: str) -> None:
        """Stores that the check of a timed configuration could not be completed."""
        self._write("INSERT OR REPLACE INTO failures VALUES (?, ?, ?, ?)", [(problem.key, name, status.value, message)])

    def failures(self, problem: Problem) -> list[tuple[str, Status, str]]:
        query = "SELECT name, status, message FROM failures WHERE size = ?"
        return self._rows(query, (problem.key,), lambda name, status, message: (name, Status(status), message))

    def checked(self, problem: Problem) -> set[str]:
        """The configurations of a size whose check is complete: they have verdicts at two sizes, or a failure."""

        # SQLite's json_extract cannot be used: errors may be infinite, which is not JSON.
        def decode(name: str, text: str) -> tuple[str, Problem]:
            return name, problem_from_dict(json.loads(text)["problem"])

        query = "SELECT name, verdict FROM verdicts WHERE size = ?"
        sizes = Counter(name for name, _ in set(self._rows(query, (problem.key,), decode)))
        complete = {name for name, count in sizes.items() if count >= 2}
        return complete | {name for name, _, _ in self.failures(problem)}

    def keep_state(self, problem: Problem, rows: Mapping[str, Mapping[str, Any]]) -> None:
        """Stores ``SizeState.rows`` of a finished size."""
        self._write("INSERT OR REPLACE INTO states VALUES (?, ?)", [(problem.key, json.dumps(rows))])

    def state_rows(self, problem: Problem) -> dict[str, dict[str, Any]]:
        query = "SELECT rows FROM states WHERE size = ?"
        found = self._rows(query, (problem.key,), lambda text: dict(json.loads(text)))
        return found[0] if found else {}

    def record_outcome(self, problem: Problem, name: str, reason: str = "") -> None:
        """Stores the outcome of a size: the chosen configuration, or "" with the reason."""
        self._write("INSERT OR REPLACE INTO finished VALUES (?, ?, ?)", [(problem.key, name, reason)])

    def finished(self, problem: Problem) -> tuple[str, str] | None:
        """(name, reason) of a finished size; None for an unfinished one."""
        rows = self._rows("SELECT name, reason FROM finished WHERE size = ?", (problem.key,))
        return rows[0] if rows else None

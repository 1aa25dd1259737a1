"""The results of a spec's program runs, one JSON line per program run, from which a killed command resumes."""

from __future__ import annotations

import hashlib
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

import msgspec

from gemm_tuner.core.errors import FREE_SPACE, CannotWrite, EnvironmentFault
from gemm_tuner.kernels.attempt import Outcome
from gemm_tuner.kernels.program_spec import ProgramSpec
from gemm_tuner.system.conversion import decoded
from gemm_tuner.system.run_lock import RunLock

FILE = "runs.jsonl"
SCREEN, FINALS = "screen", "finals"


@dataclass(frozen=True, slots=True)
class Line:
    """The result of one program run. key: from ``kernels.identity``. number: index among the runs of the stage."""

    key: str
    stage: str
    number: int
    outcome: Outcome


def folder_of(spec: ProgramSpec, output_dir: Path) -> Path:
    """The folder for the results of a spec file."""
    name = re.sub(r"[^A-Za-z0-9_.-]", "_", spec.name)[:60]
    return output_dir / f"spec-{name}-{hashlib.sha256(str(spec.path.resolve()).encode()).hexdigest()[:8]}"


class SpecJournal:
    """The journal of a folder. The process holds the folder's lock until ``close``."""

    def __init__(self, folder: Path, *, fresh: bool) -> None:
        """Raises EnvironmentFault if the folder cannot be created, or another process holds its lock."""
        self.path = folder / FILE
        try:
            self.builds.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            hint = "choose another --output_dir"
            raise EnvironmentFault(f"cannot make the folder: {error.strerror}", where=str(folder), hint=hint) from None
        self._lock = RunLock(folder)
        self._lock.take()
        if fresh:
            self.path.unlink(missing_ok=True)
            shutil.rmtree(self.builds, ignore_errors=True)
            self.builds.mkdir(exist_ok=True)
        self._known = {(line.key, line.stage, line.number): line.outcome for line in _read(self.path)}

    @property
    def builds(self) -> Path:
        """The folder for {out} of build command lines."""
        return (self.path.parent / "build").resolve()

    def known(self, key: str, stage: str, number: int) -> Outcome | None:
        """The outcome that an earlier start has found; None for none."""
        return self._known.get((key, stage, number))

    def add(self, line: Line) -> None:
        """Appends an outcome. Raises CannotWrite for a full disk."""
        try:
            with self.path.open("ab") as file:  # the newline terminates an incomplete line of a killed run
                file.write(b"\n" + msgspec.json.encode(line) + b"\n")
        except OSError as error:
            raise CannotWrite(f"cannot be written: {error.strerror}", where=str(self.path), hint=FREE_SPACE) from None

    def close(self) -> None:
        self._lock.release()


def _read(path: Path) -> list[Line]:
    """The complete lines; the last one may be incomplete after a kill."""
    if not path.exists():
        return []
    lines = []
    for text in path.read_bytes().splitlines():
        try:
            lines.append(decoded(text, Line))
        except msgspec.DecodeError:
            continue
    return lines

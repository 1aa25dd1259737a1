"""Notes of launches whose configuration was not tuned: lines of JSON, appended by many processes."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from gemm_tuner.core.errors import UserError
from gemm_tuner.kernels.kernel_spec import Scalar
from gemm_tuner.system.input_files import printable, read_text
from gemm_tuner.system.json_records import parse_json, record_of

MAX_FILE_BYTES = 256 * 2**20


@dataclass(frozen=True)
class Memory:
    """A tensor as a kernel sees it. dtype: a key of DTYPES. elements: from its pointer to its last element."""

    dtype: str
    elements: int


@dataclass(frozen=True)
class LaunchNote:
    """A launch of a kernel under an autotuner.

    file:      of the kernel.
    key:       names of arguments that choose a configuration; the types of tensors do, too.
    scalars:   arguments that are no tensors and no parameters of configurations.
    grid:      expressions of parameters and of grid_0, grid_1 ..., whose values are in ``constants``; empty where the
               grid cannot be expressed.
    configs:   the autotuner's own.
    unsaid:    arguments that a spec cannot hold, each with what it is.
    """

    kernel: str
    file: str
    key: list[str]
    scalars: dict[str, Scalar]
    tensors: dict[str, Memory]
    grid: list[str]
    constants: list[int]
    configs: list[dict[str, Scalar]]
    unsaid: list[str]
    device: str = ""

    @property
    def case(self) -> dict[str, Scalar]:
        """What tells launches of the kernel apart."""
        return {**self.scalars, **{f"{name}_dtype": one.dtype for name, one in self.tensors.items()}}

    @property
    def chooses(self) -> tuple[tuple[str, Scalar], ...]:
        """Equal for launches that share a configuration."""
        return chosen_by(self.case, self.key)


def chosen_by(case: dict[str, Scalar], key: list[str]) -> tuple[tuple[str, Scalar], ...]:
    """Of a launch: the key's values, and the types of tensors."""
    return tuple((name, value) for name, value in sorted(case.items()) if name in key or name.endswith("_dtype"))


def append(path: Path, note: LaunchNote) -> None:
    """Adds a line; lines of processes that do so at once do not mix. Raises OSError."""
    line = json.dumps(asdict(note)).encode() + b"\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab", buffering=0) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        written = file.write(line)
        if written != len(line):  # the disk is full: no half line stays
            os.ftruncate(file.fileno(), file.tell() - (written or 0))
            raise OSError("no space left")


def read(path: Path) -> Iterator[LaunchNote]:
    """The notes of a file. Raises UserError naming the line that is none."""
    for number, line in enumerate(read_text(path, "notes", "JSON lines", MAX_FILE_BYTES).splitlines(), 1):
        where = f"{printable(path)}, line {number}"
        if not line.strip():
            continue
        value = parse_json(line, "note", where)
        if not isinstance(value, dict):
            raise UserError("is no note of a launch", where=where, accepted="what gt.install() writes")
        yield record_of(LaunchNote, value, where)

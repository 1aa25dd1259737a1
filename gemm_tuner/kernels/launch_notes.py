"""Records of launches whose configuration was not tuned: JSON lines in a file that many processes append to."""

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
    """A tensor argument. dtype: a key of DTYPES. elements: number of elements from its pointer to its last element."""

    dtype: str
    elements: int


@dataclass(frozen=True)
class LaunchNote:
    """One launch of a kernel under an autotuner.

    file:      source file of the kernel.
    key:       names of arguments that select a configuration, in addition to the types of tensors.
    scalars:   arguments that are neither tensors nor parameters of configurations.
    grid:      expressions of parameters and of grid_0, grid_1 ..., whose values are in ``constants``; empty if the grid
               cannot be expressed.
    configs:   the autotuner's configurations.
    unsaid:    arguments that a spec cannot express, each with its type.
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
        """The values that distinguish launches of the kernel."""
        return {**self.scalars, **{f"{name}_dtype": one.dtype for name, one in self.tensors.items()}}

    @property
    def chooses(self) -> tuple[tuple[str, Scalar], ...]:
        """The autotuner's key values; equal for launches that share a configuration."""
        return chosen_by(self.case, self.key)


def chosen_by(case: dict[str, Scalar], key: list[str]) -> tuple[tuple[str, Scalar], ...]:
    """The key of a launch: the values of the key's arguments, and the types of tensors."""
    return tuple((name, value) for name, value in sorted(case.items()) if name in key or name.endswith("_dtype"))


def append(path: Path, note: LaunchNote) -> None:
    """Appends a line with a single write, so that lines of concurrent processes do not mix. Raises OSError.

    The file itself is locked: filelock locks only files without content.
    """
    line = json.dumps(asdict(note)).encode() + b"\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab", buffering=0) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        written = file.write(line)
        if written != len(line):  # the disk is full; remove the partial line
            os.ftruncate(file.fileno(), file.tell() - (written or 0))
            raise OSError("no space left")


def read(path: Path) -> Iterator[LaunchNote]:
    """The notes of a file. Raises UserError naming an invalid line."""
    for number, line in enumerate(read_text(path, "notes", "JSON lines", MAX_FILE_BYTES).splitlines(), 1):
        where = f"{printable(path)}, line {number}"
        if not line.strip():
            continue
        value = parse_json(line, "note", where)
        if not isinstance(value, dict):
            raise UserError("is no note of a launch", where=where, accepted="what gt.install() writes")
        yield record_of(LaunchNote, value, where)

"""Scripts, compiled kernels and a launcher's files as content: no path of one machine means anything on another."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from gemm_tuner.core.errors import EnvironmentFault
from gemm_tuner.core.script import SHA_DIGITS, text_sha
from gemm_tuner.system import carried_files
from gemm_tuner.system.documents import write_text_atomically

# What a launcher leaves that only the tool which wrote it reads; its text form is beside it.
RECORDINGS = (".nsys-rep", ".qdstrm", ".sqlite", ".ncu-rep")
MOST_BYTES = 64 * 2**20


@dataclass(frozen=True, slots=True)
class ScriptText:
    """A script's file by its name, which holds the hash of its text."""

    file: str
    text: str


def read_scripts(scripts_dir: Path, files: Iterable[str]) -> tuple[ScriptText, ...]:
    return tuple(ScriptText(file, (scripts_dir / file).read_text("utf-8")) for file in files)


def write_scripts(scripts: Iterable[ScriptText], scripts_dir: Path) -> None:
    """Raises EnvironmentFault for a text that is not what its name says, before it is written."""
    scripts_dir.mkdir(parents=True, exist_ok=True)
    for script in scripts:
        said = Path(script.file).stem[-SHA_DIGITS:]
        if Path(script.file).name != script.file or text_sha(script.text) != said:
            raise EnvironmentFault("a script did not arrive as it was sent", where=script.file)
        if not (scripts_dir / script.file).exists():
            write_text_atomically(scripts_dir / script.file, script.text)


def read_carried(paths: Iterable[str]) -> tuple[tuple[str, bytes], ...]:
    """Files that problems name, by those paths. Raises EnvironmentFault for one that is gone."""
    try:
        return tuple((path, Path(path).read_bytes()) for path in paths)
    except OSError as error:
        raise EnvironmentFault(f"cannot be read any more: {error.strerror}", where=error.filename) from error


def write_carried(files: Iterable[tuple[str, bytes]], scripts_dir: Path) -> None:
    for path, content in files:
        (scripts_dir / carried_files.FOLDER / carried_files.copy_name(path)).write_bytes(content)


def read_files(folder: Path) -> tuple[tuple[str, bytes], ...]:
    """The files of a launcher's folder by their paths in it, less recordings, up to MOST_BYTES in all."""
    found, left = [], MOST_BYTES
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.suffix not in RECORDINGS and path.stat().st_size <= left:
            found.append((path.relative_to(folder).as_posix(), path.read_bytes()))
            left -= len(found[-1][1])
    return tuple(found)


def write_files(files: Iterable[tuple[str, bytes]], folder: Path) -> None:
    """Raises EnvironmentFault for a name that leads out of the folder."""
    for name, content in files:
        path = folder / name
        if not path.resolve().is_relative_to(folder.resolve()):
            raise EnvironmentFault("a worker sent a file that is none of its folder", where=name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

"""Reports an internal error, which a user cannot fix: the traceback goes to a file, and two lines say where."""

from __future__ import annotations

import contextlib
import platform
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

from gemm_tuner import __version__

FOLDER = "gemm_tuner_folder"


@contextlib.contextmanager
def belongs_to(folder: Path) -> Iterator[None]:
    """Marks exceptions that leave the block as belonging to the run in this folder."""
    try:
        yield
    except (Exception, KeyboardInterrupt) as error:
        vars(error).setdefault(FOLDER, folder)
        raise


def folder_of(error: BaseException) -> Path | None:
    """The folder of the run that the error ended; None if no run had begun."""
    folder: Path | None = vars(error).get(FOLDER)
    return folder


def report(error: Exception, command: list[str]) -> list[str]:
    """Writes the traceback to the run's folder, else to the temporary folder. Returns the lines to print: the error
    with its place in the code, and the name of the file."""
    text = "".join(traceback.format_exception(error))
    about = f"tuner {__version__}, Python {platform.python_version()} on {platform.platform()}\n{' '.join(command)}\n\n"
    name = f"bug-{time.strftime('%Y%m%d-%H%M%S')}.txt"
    frames = traceback.extract_tb(error.__traceback__)
    at = f", {Path(frames[-1].filename).name} line {frames[-1].lineno}" if frames else ""
    what = " ".join(f"{type(error).__name__}: {error}".split())[:300]
    lines = [f"a bug of the tuner: {what}{at}"]
    folder = folder_of(error)
    for where in filter(None, (folder, Path(tempfile.gettempdir()))):
        with contextlib.suppress(OSError):
            path = where / name
            path.write_text(about + text, encoding="utf-8", errors="backslashreplace")
            kept = f"; what was found is kept in {folder}" if folder else ""
            return [*lines, f"please report it with {path}{kept}"]
    print(text, file=sys.stderr)
    return [*lines, "please report it with the traceback above"]

"""Reads files from users: only regular files and standard input, up to a size limit; and those of the system."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

from gemm_tuner.core.errors import UserError

# The path that means standard input.
STDIN = "-"


def printable(path: str | os.PathLike[str]) -> str:
    """A path for a message."""
    text = str(path)
    if text == STDIN:
        return "standard input"
    return text if text.isprintable() else repr(text)


def read_text(path: str | os.PathLike[str], what: str, form: str, max_bytes: int) -> str:
    """The UTF-8 text of a file, without a byte order mark.

    what: the role of the file in messages. form: its format in messages, such as YAML.
    Raises UserError if the file is missing, not a regular file, larger than ``max_bytes``, or not UTF-8.
    """
    data = read_bytes(path, what, form, max_bytes)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UserError(
            f"the {what} is not UTF-8 text",
            where=f"{printable(path)}, line {line}",
            accepted=f"{form} in UTF-8",
            hint="save it as UTF-8",
        ) from None


def read_bytes(path: str | os.PathLike[str], what: str, form: str, max_bytes: int) -> bytes:
    """The bytes of a file, or of standard input for STDIN. Raises UserError as ``read_text`` does, except that any
    bytes are accepted."""
    try:
        if str(path) == STDIN:
            data = sys.stdin.buffer.read(max_bytes + 1)
        else:
            with open(path, "rb", opener=_open_at_once) as file:
                if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    raise OSError(0, "it is a pipe, a socket or a device")
                data = file.read(max_bytes + 1)
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise UserError(
            f"cannot read the {what}: {reason}",
            where=printable(path),
            accepted=f"a file of {form} that exists and may be read",
            hint="check the path",
        ) from None
    if len(data) > max_bytes:
        limit = f"up to {max_bytes >> 20} MiB"
        raise UserError(f"the {what} is too large", where=printable(path), accepted=limit, hint="split it")
    return data


def _open_at_once(path: str, flags: int) -> int:
    """Opens a file without blocking: opening a pipe would otherwise wait for a writer."""
    return os.open(path, flags | os.O_NONBLOCK)


def text_in(path: Path) -> str:
    """The text of a file of the system or of a driver; "" if it is missing or not readable."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""

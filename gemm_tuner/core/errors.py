"""Errors that a user can fix, and the exit statuses."""

from __future__ import annotations

EXIT_OK = 0
EXIT_UNVERIFIED = 1
EXIT_INPUT = 2
EXIT_ENVIRONMENT = 3
EXIT_BUG = 70  # EX_SOFTWARE of sysexits.h
EXIT_INTERRUPTED = 130


class UserError(Exception):
    """An error that the user can fix; caught in one place, ``cli.main``.

    what:     what is wrong: one sentence without a full stop.
    where:    the file and entry, or the flag.
    accepted: the values that would have been accepted.
    hint:     what the user can do next.
    """

    exit_status = EXIT_INPUT

    def __init__(self, what: str, *, where: str = "", accepted: str = "", hint: str = "") -> None:
        self.what, self.where, self.accepted, self.hint = what, where, accepted, hint
        super().__init__(self.one_line())

    def one_line(self) -> str:
        parts = [f"{self.where}: {self.what}" if self.where else self.what]
        if self.accepted:
            parts.append(f"accepted: {self.accepted}")
        if self.hint:
            parts.append(self.hint)
        return "; ".join(" ".join(part.split()) for part in parts)


# The hint of errors that say a file cannot be written.
FREE_SPACE = "free some space and start the same command again: it goes on where it was"


class EnvironmentFault(UserError):
    """The machine lacks something: no such GPU, profiler, package, disk space."""

    exit_status = EXIT_ENVIRONMENT


class CannotWrite(EnvironmentFault):
    """The disk is full or not writable. Neither a GPU nor a profiler is at fault, so a retry would fail in the same
    way."""

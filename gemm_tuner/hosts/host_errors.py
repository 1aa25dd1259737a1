"""What a user's host function does that keeps its launches from being captured."""

from __future__ import annotations


class HostError(Exception):
    """The text says what it does. by_spec: a spec without a host function is the way out."""

    def __init__(self, what: str, *, by_spec: bool = True) -> None:
        super().__init__(what)
        self.by_spec = by_spec

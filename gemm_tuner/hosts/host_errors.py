"""The error for host functions whose launches cannot be captured."""

from __future__ import annotations


class HostError(Exception):
    """A host function cannot be captured; the text says why. by_spec: a spec without a host function would help."""

    def __init__(self, what: str, *, by_spec: bool = True) -> None:
        super().__init__(what)
        self.by_spec = by_spec

"""The error for host functions whose launches cannot be captured, and what raises it."""

from __future__ import annotations

from typing import Any


class HostError(Exception):
    """A host function cannot be captured; the text says why. by_spec: a spec without a host function would help."""

    def __init__(self, what: str, *, by_spec: bool = True) -> None:
        super().__init__(what)
        self.by_spec = by_spec


class CompiledNowhere:
    """Returned by recorded launches instead of a compiled kernel; reading an attribute raises HostError."""

    def __init__(self, kernel: str) -> None:
        self._kernel = kernel

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise HostError(f"reads {name} of the compiled {self._kernel}, which there is none of before it is tuned")

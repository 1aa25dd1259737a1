"""The source of a CuTe DSL kernel: text and values. This module does not import the DSL."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from typing import Any

from gemm_tuner.languages.cute.library import STAYS_LOADED

NAME = re.compile(r"[A-Za-z_]\w{0,199}", re.ASCII)
# The DSL appends this to the name of the first kernel that a function launches.
SUFFIX = "_0"


def symbol_of(name: str) -> str:
    """The kernel's name in machine code and in traces."""
    return name + SUFFIX


@dataclass(frozen=True, slots=True)
class Source:
    """One kernel with the host code that launches it.

    name:    name of the kernel; in traces it is ``symbol_of(name)``.
    arch:    such as sm_90.
    text:    a Python module, which may import the DSL.
    builder: its function that takes ``values`` and returns what ``compiler.build`` needs.
    values:  a JSON object. If the text reads other files, their hashes must be among the values.
    """

    name: str
    arch: str
    text: str
    builder: str
    values: str

    @classmethod
    def of(cls, kernel: Any) -> Source:
        """From a ``Kernel`` of a generated script. Raises ValueError for an invalid name."""
        source = cls(kernel.name, kernel.arch, kernel.text, kernel.builder, json.dumps(kernel.values, sort_keys=True))
        if not NAME.fullmatch(source.name):
            raise ValueError(f"{source.name[:80]!r} is no name of a kernel")
        return source

    @property
    def entry(self) -> str:
        """The name of its cache entry. Not the DSL's version, so that launchers do not need the DSL: it is part of the
        cache's name where that is this language's own, and families name the version that they take."""
        parts = (self.name, self.arch, self.text, self.builder, self.values, STAYS_LOADED)
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()

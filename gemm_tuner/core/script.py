"""A generated script, identified by its content.

Tasks and plans refer to scripts by hash instead of by path, so that they can be executed in any folder on any machine.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

SHA_DIGITS = 12


@dataclass(frozen=True, slots=True)
class Script:
    """Identifies a generated script independently of the folder it is in.

    name:       family and signature, for display.
    text_sha:   hash of the whole text.
    kernel_sha: hash of the text without the table of configurations, that is of what the kernels are compiled from.
                Scripts that differ only in their configurations share compiled kernels.
    language:   name of the language of the kernels; empty if it is that of the kind of problem.
    """

    name: str
    text_sha: str
    kernel_sha: str
    language: str = ""

    @property
    def file(self) -> str:
        """The file name in the folder of scripts. It contains the hash, so the content of a file never changes."""
        return f"{self.name}_{self.text_sha}.py"


def text_sha(text: str) -> str:
    """The first SHA_DIGITS hex digits of the text's sha256."""
    return hashlib.sha256(text.encode()).hexdigest()[:SHA_DIGITS]

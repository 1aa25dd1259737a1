"""A generated script by its content: tasks and plans that name one can be executed in any folder, on any machine."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

SHA_DIGITS = 12


@dataclass(frozen=True, slots=True)
class Script:
    """A script, whatever folder its file lies in.

    name:       family and signature, for people.
    text_sha:   of its whole text.
    kernel_sha: of its text without configurations: what its kernels are compiled from. Scripts that differ in their
                configurations alone share compiled kernels.
    """

    name: str
    text_sha: str
    kernel_sha: str

    @property
    def file(self) -> str:
        """The file's name in the folder of scripts: another text has another name, so that no file ever changes."""
        return f"{self.name}_{self.text_sha}.py"


def text_sha(text: str) -> str:
    """The first SHA_DIGITS hex digits of the text's sha256."""
    return hashlib.sha256(text.encode()).hexdigest()[:SHA_DIGITS]

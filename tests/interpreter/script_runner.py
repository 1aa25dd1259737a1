"""Runs a user's script in Triton's interpreter."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from interpreter_child import interpreter


def run_script(text: str, folder: Path) -> None:
    """As a script that is run in a folder, whose modules it imports. Raises AssertionError with its traceback."""
    assert interpreter().ask(ran, text=text, folder=str(folder)) is None


def ran(text: str, folder: str) -> None:
    """Inside the interpreting process, which forgets what was imported from the folder."""
    before, here = set(sys.modules), Path.cwd()
    sys.path.insert(0, folder)
    os.chdir(folder)
    try:
        exec(compile(text, f"{folder}/script.py", "exec"), {"__name__": "__main__"})
    finally:
        os.chdir(here)
        sys.path.remove(folder)
        for name in set(sys.modules) - before:
            if (getattr(sys.modules[name], "__file__", None) or "").startswith(str(Path(folder).parent)):
                del sys.modules[name]

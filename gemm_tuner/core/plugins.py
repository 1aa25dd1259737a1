"""Lookup of a protocol's implementation by name, in this package or through an entry point of another."""

from __future__ import annotations

import importlib
import importlib.util
import re
from typing import Any


def find(module: str, attribute: str, group: str, name: str, what: str) -> Any:
    """``attribute`` of ``module`` if that module exists, else of the module that the entry point ``name`` of ``group``
    refers to.

    what: a noun for the error message, such as "language". Raises ValueError when ``name`` is neither, or is not a
    lower-case identifier.
    """
    fault = ValueError(f"there is no {what} {name[:60]!r}")
    if not re.fullmatch("[a-z][a-z_0-9]*", name):
        raise fault
    package = module.rpartition(".")[0]
    if importlib.util.find_spec(package) and importlib.util.find_spec(module):
        found = getattr(importlib.import_module(module), attribute, None)
        if found is not None:
            return found
    from importlib import metadata  # slow to import (a tenth of a launcher's import time), so only on demand

    for entry in metadata.entry_points(group=group, name=name):
        return getattr(entry.load(), attribute)
    raise fault

"""Implementations of a protocol by name: in this package, or in one that brings an entry point."""

from __future__ import annotations

import importlib
import importlib.util
import re
from typing import Any


def find(module: str, attribute: str, group: str, name: str, what: str) -> Any:
    """``attribute`` of ``module`` where there is such a module, else of the module that an entry point ``name`` of
    ``group`` names.

    Raises ValueError, which says ``what`` there is none of, for a name that is neither or no identifier in lower case.
    """
    fault = ValueError(f"there is no {what} {name[:60]!r}")
    if not re.fullmatch("[a-z][a-z_0-9]*", name):
        raise fault
    package = module.rpartition(".")[0]
    if importlib.util.find_spec(package) and importlib.util.find_spec(module):
        found = getattr(importlib.import_module(module), attribute, None)
        if found is not None:
            return found
    from importlib import metadata  # a tenth of what a launcher imports: only where it is asked for

    for entry in metadata.entry_points(group=group, name=name):
        return getattr(entry.load(), attribute)
    raise fault

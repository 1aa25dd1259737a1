"""Reads what an earlier export wrote as Python, without running it."""

from __future__ import annotations

import ast
from typing import Any


def assignments(text: str) -> dict[str, Any]:
    """The syntax tree of each value that a name has at the top level of a source. Raises SyntaxError or ValueError for
    a text that is no Python."""
    body = [one for one in ast.parse(text).body if isinstance(one, ast.Assign)]
    return {ast.unparse(one.targets[0]): one.value for one in body}

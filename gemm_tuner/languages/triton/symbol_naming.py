"""A hash of how templates name kernel symbols, for the name of the cache."""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache
from pathlib import Path

PLAIN_REPR = re.compile(r"repr=(\w+)(?=[,)])")
FUNCTION = re.compile(r"^def (?P<name>\w+)\(.*?(?=^\S|\Z)", re.MULTILINE | re.DOTALL)
# Part of each cache's name: increase it when symbols change by an edit outside of the templates.
NAMING = "1"


def naming(*templates_dirs: Path) -> str:
    """12 hex digits over everything that determines symbols: the functions that templates pass as ``repr=`` (the whole
    template if it passes another expression), and NAMING.

    Triton's cache key does not contain the symbol, because ``triton.jit(repr=...)`` is not part of the source that it
    hashes. So templates that might give another symbol to the same source must use another cache. Other edits keep the
    cache, because they change Triton's key.
    """
    paths = [path for folder in reversed(templates_dirs) for path in sorted(folder.glob("*.j2"))]  # first folder wins
    return _naming_of(tuple({path.name: path.read_text("utf-8", "replace") for path in paths}.items()))


@lru_cache(maxsize=2)  # several parts of a run ask for it, and finding the functions takes 20 ms
def _naming_of(named_texts: tuple[tuple[str, str], ...]) -> str:
    """named_texts: file name and text of each template."""
    texts = dict(named_texts)
    names = {name for text in texts.values() for name in PLAIN_REPR.findall(text)}
    digest = hashlib.sha256(NAMING.encode())
    for file, text in texts.items():
        is_plain = text.count("repr=") == len(PLAIN_REPR.findall(text))
        for function in FUNCTION.finditer(text):
            if is_plain and function["name"] in names:
                digest.update(f"\n{function[0]}".encode())
        for used in PLAIN_REPR.findall(text) if is_plain else [text]:
            digest.update(f"\n{file} {used}".encode())
    return digest.hexdigest()[:12]

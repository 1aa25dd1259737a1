"""The name of the cache that kernels of some templates share: by what their symbols are made of."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

PLAIN_REPR = re.compile(r"repr=(\w+)(?=[,)])")
FUNCTION = re.compile(r"^def (?P<name>\w+)\(.*?(?=^\S|\Z)", re.MULTILINE | re.DOTALL)
# Part of the name of each cache: rises when a kernel's symbol is made in another way than by its template.
NAMING = "1"


def naming(*templates_dirs: Path) -> str:
    """12 hex digits over all that a symbol is made by: the functions that templates name by ``repr=``, or a whole
    template that has another expression there, and the version of the tuner's own names.

    A kernel's symbol is not in Triton's cache key, since ``triton.jit(repr=...)`` is not part of the source that it
    hashes. So templates that could name the same source in another way have a cache of their own. Other edits keep the
    cache: what they change is in Triton's key.
    """
    paths = [path for folder in reversed(templates_dirs) for path in sorted(folder.glob("*.j2"))]  # the first counts
    texts = {path.name: path.read_text("utf-8", "replace") for path in paths}
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

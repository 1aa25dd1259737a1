"""A share on the command line, as several subcommands take it."""

from __future__ import annotations

import argparse
import re

from gemm_tuner.system.documents import show

_FORM = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,6})?) ?(%?)")


def percent(text: str) -> float:
    """An argparse type: ``2%`` or ``0.02`` is 0.02; a bare number of 1 or more could mean either and is refused."""
    found = _FORM.fullmatch(text.strip())
    if found is None or (not found[2] and float(found[1]) >= 1):
        raise argparse.ArgumentTypeError(f"{show(text)} is no share such as 2% or 0.02")
    return float(found[1]) / 100 if found[2] else float(found[1])

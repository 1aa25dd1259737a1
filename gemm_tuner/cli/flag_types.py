"""Types of flag values for argparse; errors say which values are accepted."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path

from gemm_tuner.gemm.problem import MAX_BATCH
from gemm_tuner.system.cores import usable_cores
from gemm_tuner.system.documents import show
from gemm_tuner.system.values import FACTOR_FORM, did_you_mean, is_factor

UNITS = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
SIZE = re.compile(f"([0-9]{{1,6}}) ?({'|'.join(UNITS)})?")
PERCENT = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,6})?) ?(%?)")
DURATION = re.compile(r"(?:(\d{1,4})h)?(?:(\d{1,6})m)?(?:(\d{1,8})s?)?")


def _at_least(least: int) -> Callable[[str], int]:
    """An argparse type: an integer of at least ``least``."""

    def checked(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if value < least:
            raise argparse.ArgumentTypeError(f"{show(text)} is not an integer of {least} or more")
        return value

    return checked


positive, not_negative = _at_least(1), _at_least(0)


def worker_count(text: str) -> int:
    """An argparse type: a number of processes, or a share of the cores below 1, at least one process."""
    share = float(text) if re.fullmatch(r"0?\.[0-9]{1,6}", text) else 0.0
    if share:
        return max(1, int(share * usable_cores()))
    try:
        return positive(text)
    except argparse.ArgumentTypeError as error:
        raise argparse.ArgumentTypeError(f"{error}, nor a share of the cores such as 0.9") from None


def id_list(text: str) -> tuple[int, ...]:
    """An argparse type: comma-separated GPU ids."""
    if not re.fullmatch("[0-9]{1,6}(,[0-9]{1,6})*", text):
        raise argparse.ArgumentTypeError(f"{show(text)} is no list of ids such as 0,1,3")
    return tuple(int(part) for part in text.split(","))


def number_list(text: str) -> tuple[int, ...]:
    """An argparse type: comma-separated integers of 1 or more, each once."""
    words = [word.strip() for word in text.split(",")]
    if not all(re.fullmatch("[0-9]{1,12}", word) and int(word) for word in words):
        raise argparse.ArgumentTypeError(f"{show(text)} is no list of integers of 1 or more, such as 1,16,64")
    return tuple(dict.fromkeys(map(int, words)))


def number_pair(text: str) -> tuple[int, int]:
    """An argparse type: two comma-separated integers of 1 or more."""
    words = text.split(",")
    if len(words) != 2:
        raise argparse.ArgumentTypeError(f"{show(text)} is not ROWS,COLUMNS, such as 128,128")
    return positive(words[0].strip()), positive(words[1].strip())


def name_list(text: str) -> tuple[str, ...]:
    """An argparse type: comma-separated names."""
    names = tuple(name.strip() for name in text.split(","))
    if not all(re.fullmatch("[a-z_0-9]{1,60}", name) for name in names):
        raise argparse.ArgumentTypeError(f"{show(text)} is no list of names; accepted: gemm_tile,gemv")
    return names


def output_file(text: str) -> Path:
    """An argparse type: the path of a file that is written, in a folder that exists."""
    path, accepted = Path(text), "a file in a folder that exists"
    if not text:
        raise argparse.ArgumentTypeError(f"is empty; accepted: {accepted}")
    if os.path.isdir(path) or text.endswith(os.sep):
        raise argparse.ArgumentTypeError(f"{show(text)} is a folder; accepted: {accepted}")
    if not os.path.isdir(os.path.dirname(os.path.realpath(path))):
        raise argparse.ArgumentTypeError(f"the folder {show(str(path.parent))} does not exist; accepted: {accepted}")
    return path


def output_folder(text: str) -> Path:
    """An argparse type: the path of a folder that files are written into, which is made where it is not there."""
    path = Path(text)
    there = next((one for one in (path, *path.parents) if os.path.lexists(one)), Path())
    if not os.path.isdir(there):
        raise argparse.ArgumentTypeError(
            f"{show(str(there))} is a file; accepted: a folder, which is made where it is not"
        )
    return path


def batch_count(text: str) -> int:
    """An argparse type: the number of products in a call."""
    value = positive(text)
    if value > MAX_BATCH:
        raise argparse.ArgumentTypeError(f"{show(text)} is more than {MAX_BATCH}, the most that one launch takes")
    return value


def factor(text: str) -> float:
    """An argparse type: a number in the range of fp32; -0 becomes 0."""
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not is_factor(value):
        raise argparse.ArgumentTypeError(f"{show(text)} is not {FACTOR_FORM}")
    return value + 0.0


def one_of(
    names: Iterable[str], hint_for: Callable[[str, tuple[str, ...]], str] = did_you_mean
) -> Callable[[str], str]:
    """An argparse type: one of ``names``. hint_for: makes a hint from an invalid text and the names."""
    known = tuple(names)

    def checked(text: str) -> str:
        if text in known:
            return text
        hint = hint_for(text, known)
        accepted = ", ".join(known)
        raise argparse.ArgumentTypeError(
            f"{show(text)} is not known; accepted: {accepted}" + (f"; {hint}" if hint else "")
        )

    return checked


def duration_s(text: str) -> float:
    """An argparse type: a duration such as 90, 90s, 10m or 1h30m, in seconds."""
    found = DURATION.fullmatch(text)
    seconds = (
        sum(int(part or 0) * unit for part, unit in zip(found.groups(), (3600, 60, 1), strict=True)) if found else 0
    )
    if seconds <= 0:
        raise argparse.ArgumentTypeError(f"{show(text)} is no time; accepted: 90, 90s, 10m, 1h30m")
    return float(seconds)


def size_bytes(text: str) -> int:
    """An argparse type: a size such as 20GiB or 500MiB, in bytes; 0 is allowed."""
    found = SIZE.fullmatch(text)
    if not found or (not found[2] and int(found[1])):
        raise argparse.ArgumentTypeError(f"{show(text)} is no size; accepted: 20GiB, 500MiB, 0")
    return int(found[1]) * UNITS.get(found[2], 0)


def percent(text: str) -> float:
    """An argparse type: a percentage from 0 to 100. ``2%``, ``2 %`` and ``2`` are 2.0.

    A number between 0 and 1 without % is refused, because 0.02 could mean 0.02 % or, as a share, 2 %.
    """
    found = PERCENT.fullmatch(text.strip())
    value = float(found[1]) if found else -1.0
    if found is None or value > 100:
        raise argparse.ArgumentTypeError(f"{show(text)} is no percentage; accepted: 0 to 100, such as 2%")
    if 0 < value < 1 and not found[2]:
        either = f"write '{value:g}%' or '{value * 100:g}%'"
        raise argparse.ArgumentTypeError(f"{show(text)} could be a percentage or a share; {either}")
    return value

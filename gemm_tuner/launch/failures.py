"""Errors of launches: which end one configuration, and after which the whole process must end."""

from __future__ import annotations

from collections.abc import Sequence

from gemm_tuner.core.records import Status
from gemm_tuner.launch.journal import End, Fail, Journal

# What Triton and the drivers say when a kernel does not fit the GPU; the run goes on after it.
OUT_OF_RESOURCES_WORDS = ("out of memory", "out of resource", "outofresources", "too many resources requested")
# Errors after which every later call of the process fails: the process must end. Those of one word are HIP's.
STICKY_WORDS = (
    "illegal memory access",
    "misaligned address",
    "unspecified launch failure",
    "illegal instruction",
    "device-side assert",
    "hardware stack error",
    "invalid program counter",
    "launch timed out",
    "uncorrectable ecc error",
    "uncorrectable nvlink error",
    "context is destroyed",
    "devices unavailable",
    "cuda error: unknown error",
    "hiperrorillegaladdress",
    "hiperrorlaunchfailure",
    "hiperroreccnotcorrectable",
)


class StickyError(Exception):
    """The GPU context is lost; the configuration named in the journal's last line did it, or one of its round."""


def status_of(error: BaseException) -> Status:
    """CRASHED for an error after which every later call of the process fails; else whether a kernel did not fit."""
    lower = f"{type(error).__name__}: {error}".lower()
    if any(words in lower for words in STICKY_WORDS):
        return Status.CRASHED
    too_large = any(words in lower for words in OUT_OF_RESOURCES_WORDS)
    return Status.OUT_OF_RESOURCES if too_large else Status.LAUNCH_ERROR


def report_failure(journal: Journal, index: int, name: str, error: Exception) -> None:
    """Journals why a configuration could not run. Raises StickyError when nothing more can."""
    text, status = f"{type(error).__name__}: {error}", status_of(error)
    if status is Status.CRASHED:
        journal.write(Fail(index, name, status, text))
        raise StickyError(text) from error
    journal.write(Fail(index, name, status, text[:2000]))


def report_uncompared(journal: Journal, index: int, names: Sequence[str], error: Exception) -> None:
    """Journals that configurations which ran could not be compared with each other, and ends them: none is verified.
    Raises StickyError when nothing more can run: the next process compares those that are left."""
    text, status = f"{type(error).__name__}: {error}", status_of(error)
    if status is Status.CRASHED:
        raise StickyError(text) from error
    for name in names:
        journal.write(Fail(index, name, status, f"not compared with the others: {text}"[:2000]))
        journal.write(End(index, name))

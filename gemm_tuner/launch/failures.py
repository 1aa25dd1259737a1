"""Classifies errors of launches: those that fail one configuration, and those after which the process must end."""

from __future__ import annotations

import re
from collections.abc import Sequence

from gemm_tuner.core.records import Status
from gemm_tuner.launch.journal import End, Fail, Journal

OUT_OF_MEMORY = "out of memory"
MEMORY_WORDS = (OUT_OF_MEMORY, "memoryerror", "status_alloc_failed")  # the last of cuBLAS and hipBLAS
# In messages of Triton and drivers when a kernel does not fit the GPU; the process can continue.
OUT_OF_RESOURCES_WORDS = (*MEMORY_WORDS, "out of resource", "outofresources", "too many resources requested")
# In messages of errors after which every later call of the process fails. The single words are HIP's.
STICKY_WORDS = (
    "illegal memory access",
    "misaligned address",
    "unspecified launch failure",
    "illegal instruction",
    "device-side assert",
    "hardware stack error",
    "global/shared address space",
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
# Where a launch fails, the runtime of CuTe DSL says the number of CUDA's error, and the DSL itself, where it is
# imported, also its name.
NUMBER = re.compile(r"(?:cuda error code: |cudaerror\w+ \(error code: )(\d+)")
WORDS_OF_NUMBER = {
    2: OUT_OF_MEMORY,
    46: "devices unavailable",
    214: "uncorrectable ecc error",
    220: "uncorrectable nvlink error",
    700: "illegal memory access",
    701: "too many resources requested",
    702: "launch timed out",
    709: "context is destroyed",
    710: "device-side assert",
    714: "hardware stack error",
    715: "illegal instruction",
    716: "misaligned address",
    717: "global/shared address space",
    718: "invalid program counter",
    719: "unspecified launch failure",
    999: "cuda error: unknown error",
}


class StickyError(Exception):
    """The GPU context is lost. The cause is the configuration in the journal's last line, or one of its round."""


def status_of(error: BaseException) -> Status:
    """CRASHED for an error after which every later call of the process fails, else OUT_OF_RESOURCES or LAUNCH_ERROR."""
    said = words_of(error)
    if any(words in said for words in STICKY_WORDS):
        return Status.CRASHED
    too_large = any(words in said for words in OUT_OF_RESOURCES_WORDS)
    return Status.OUT_OF_RESOURCES if too_large else Status.LAUNCH_ERROR


def is_out_of_memory(error: BaseException) -> bool:
    """Whether the GPU's memory did not suffice."""
    said = words_of(error)
    return status_of(error) is Status.OUT_OF_RESOURCES and any(words in said for words in MEMORY_WORDS)


def words_of(error: BaseException) -> str:
    """An error's type and text in small letters, and the words for a number that it has instead of them."""
    lower = f"{type(error).__name__}: {error}".lower()
    number = NUMBER.search(lower)
    return f"{lower} {WORDS_OF_NUMBER.get(int(number[1]), '')}" if number else lower


def report_failure(journal: Journal, index: int, name: str, error: Exception) -> None:
    """Writes to the journal why a configuration failed. Raises StickyError if the process cannot continue."""
    text, status = f"{type(error).__name__}: {error}", status_of(error)
    if status is Status.CRASHED:
        journal.write(Fail(index, name, status, text))
        raise StickyError(text) from error
    journal.write(Fail(index, name, status, text[:2000]))


def report_uncompared(journal: Journal, index: int, names: Sequence[str], error: Exception) -> None:
    """Writes to the journal that configurations ran but could not be compared with each other, so that none is
    verified. Raises StickyError if the process cannot continue; the next process then runs and compares them again."""
    text, status = f"{type(error).__name__}: {error}", status_of(error)
    if status is Status.CRASHED:
        raise StickyError(text) from error
    for name in names:
        journal.write(Fail(index, name, status, f"not compared with the others: {text}"[:2000]))
        journal.write(End(index, name))

"""The interface of consumers: what their kernels can launch, and the names, keys and entries of their files."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from gemm_tuner.consumers import sidecar
from gemm_tuner.core.errors import UserError
from gemm_tuner.core.records import Verified
from gemm_tuner.gemm.config import KernelConfig
from gemm_tuner.gemm.problem import GemmProblem, Layout
from gemm_tuner.system.documents import show

Entry = dict[str, Any]
Body = dict[str, Entry]
# The family that is timed in place of a consumer's kernel: like theirs, one program per tile, loads through pointers.
STAND_IN = "gemm_tile"
MAX_NAME_BYTES = 100
# Results that differ only in the type of C share a file; earlier types are preferred, because most models use them.
OUTPUT_ORDER = ("bf16", "fp16", "fp32")


@dataclass(frozen=True, slots=True)
class ExportTarget:
    """What files are written for. root: the folder of -o. device: the device's name, as the driver spells it. triton:
    the Triton version of the results."""

    root: Path
    device: str
    arch: str
    triton: str = ""


@dataclass(frozen=True)
class Offer:
    """A configuration that can be exported for a size, with its times.

    problem, config: of the consumer's kind of problem.
    time_us:   median kernel time at this size; None if the results file has none.
    stage:     where the time is from: ``results`` or ``served`` of the row, ``finals`` or ``screen`` of the run's
               table, ``finals`` also of what the row has beside its winner, or ``model``.
    tuned, tuned_us: name and time of the size's winner, which may be another configuration.
    timings:   times by configuration name, for all configurations of this size in the run's table.
    """

    problem: Any
    config: Any
    time_us: float | None
    stage: str
    source: str
    verified: Verified
    tuned: str
    tuned_us: float | None
    facts: dict[str, Any] = field(default_factory=dict)
    timings: dict[str, float] = field(default_factory=dict)


class Consumer(ABC):
    """A consumer of tuned configurations for problems of one kind. Its files map keys to entries."""

    name: str
    kind = GemmProblem.kind
    device_key = "device"  # the key of a results file's header that has the device's name for this consumer, or ""
    grid: tuple[tuple[str, int], ...] = ()  # (key, M) of the entries that every file must have
    takes = ""  # the problems that it accepts, in words, for messages
    splits_k = False  # its kernel may split K over the grid
    uses_smaller_m = False  # a key without a tuned M nearby gets the configuration of a smaller M
    has_default = True  # it launches something without a tuned file, which may be faster than what others can launch

    @abstractmethod
    def problem_fault(self, problem: Any, arch: str) -> str:
        """Why the consumer's kernels cannot compute a problem; "" if they can."""

    def other_consumer_fault(self, problem: Any) -> str:
        """Why a problem of this kind was tuned for another consumer; "" if it was not."""
        return ""

    @property
    def tuned_by(self) -> str:
        """What tunes for this consumer, where all problems were tuned for others; "" where nothing need be said."""
        return ""

    @abstractmethod
    def config_fault(self, problem: Any, config: Any, arch: str) -> str:
        """Why the consumer cannot launch a configuration unchanged; "" if it can."""

    @abstractmethod
    def places(self, problem: Any, target: ExportTarget) -> tuple[PurePosixPath, ...]:
        """The files for a problem's entry, relative to the folder of -o: one for each path that some version of the
        consumer reads."""

    def untold(self, problem: Any) -> str:
        """What tells a problem from others with the same file and key, for which the same configuration need not be
        good, and which the consumer looks up there, too; "" where nothing does."""
        return ""

    @abstractmethod
    def key(self, problem: Any) -> str:
        """The key of a problem in the file."""

    @abstractmethod
    def entry(self, offer: Offer, arch: str) -> Entry:
        """The value for the key."""

    def entry_at(self, place: PurePosixPath, offer: Offer, arch: str) -> Entry:
        """``entry`` for one of several files of a size."""
        return self.entry(offer, arch)

    def order(self, key: str) -> tuple[Any, ...]:
        """Sort key of an entry's key in its file. Raises ValueError for a key on which the consumer's loader fails."""
        return (key,)

    def rank(self, offer: Offer) -> tuple[Any, ...]:
        """Sort key of offers; of several offers for one key the smallest is used."""
        return (offer.time_us is None, offer.time_us)

    def default(self, place: PurePosixPath, m: int, target: ExportTarget) -> Entry | None:
        """The entry that the consumer uses for an M if there is no file; None if unknown."""
        return None

    def default_config(self, problem: Any, arch: str) -> Any:
        """``default`` as a configuration of the family that is timed in place of the consumer's kernel."""
        return None

    def text(self, body: Body, target: ExportTarget) -> str:
        """The text of a file."""
        return json.dumps(body, indent=4) + "\n"

    def load(self, path: Path) -> Body:
        """The entries of a file. Raises UserError for a file of another format."""
        return sidecar.read_entries(path)


class Served(ABC):
    """A consumer whose loader is known well enough to reproduce it, for serve-check."""

    name: str

    @abstractmethod
    def files(self, root: Path) -> tuple[list[SizeFile], list[str]]:
        """(files below a folder that the consumer's loader would open, remarks about files that it would not)."""

    def entries(self, path: Path) -> Body:
        """The entries of a file. Raises UserError for a file of another format."""
        return sidecar.read_entries(path)

    @abstractmethod
    def look_up(self, body: Mapping[str, Any], m: int) -> str:
        """The key that the loader uses for M. Raises ValueError with the reason if the loader fails."""


@dataclass(frozen=True, slots=True)
class SizeFile:
    """One data file. label: such as ``N=7168,K=2048``. remark: the condition under which it is read; "" for always."""

    path: Path
    label: str
    remark: str = ""


def output_rank(problem: GemmProblem) -> int:
    return OUTPUT_ORDER.index(problem.dtype_c) if problem.dtype_c in OUTPUT_ORDER else len(OUTPUT_ORDER)


def plain_gemm_fault(problem: GemmProblem) -> str:
    """Why a problem is not A @ W.T for a row-major activation A and weight W without batch and epilogue; "" if it
    is."""
    extras = (
        ("batch", problem.batch > 1),
        ("bias", problem.bias),
        ("activation", problem.activation != "none"),
        ("alpha", problem.has_alpha),
        ("beta", problem.reads_c),
    )
    for word, there in extras:
        if there:
            return f"has {word}, and no file of the consumer is for such a kernel"
    if (problem.layout_a, problem.layout_b) != (Layout.ROW, Layout.COL):
        return (
            f"has layout_a: {problem.layout_a.value} and layout_b: {problem.layout_b.value}, and the consumer's kernel "
            "takes layout_a: row and layout_b: col"
        )
    if problem.dtype_c not in OUTPUT_ORDER:
        return f"gives {problem.dtype_c}, which the consumer's kernel does not"
    return ""


def tile_fault(config: KernelConfig, *, split_k: bool, xcds: tuple[int, ...] = (1,), stream_b: bool = False) -> str:
    """Why a kernel like gemm_tile (one program per tile, pointer loads) cannot be launched with a configuration; or "".

    split_k, stream_b: the kernel supports SPLIT_K, STREAM_B. xcds: the values of NUM_XCDS that it supports.
    """
    if config.family != STAND_IN:
        return f"is of the family {config.family}, another kernel than the consumer's"
    if config.SPLIT_K > 1 and not split_k:
        return f"splits K in {config.SPLIT_K}, which the consumer's kernel cannot"
    if config.NUM_XCDS not in xcds:
        return f"deals tiles to {config.NUM_XCDS} chiplets, which the consumer's kernel does not"
    if config.STREAM_B and not stream_b:
        return "loads B past the nearest cache, which the consumer's kernel cannot"
    return ""


def tile_entry(config: KernelConfig) -> Entry:
    """The six keys that all consumers of tile configurations share, in the usual order."""
    keys = ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "GROUP_SIZE_M", "num_warps", "num_stages")
    return {key: getattr(config, key) for key in keys}


def file_safe(name: str, hint: str) -> str:
    """A device's name as part of a file name. Raises UserError for a name that is not usable in one."""
    if not name or not name.isprintable() or "/" in name or len(name.encode()) > MAX_NAME_BYTES:
        raise UserError(f"the device's name is {show(name)}", where="--device_name", accepted="a name", hint=hint)
    return name

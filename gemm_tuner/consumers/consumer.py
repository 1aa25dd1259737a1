"""The interface of consumers: what their kernels can launch, how their files are named and filled, and with what."""

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
MAX_NAME_BYTES = 100
# Results that differ only in the type of C share a file; the type that most models are served in comes first.
OUTPUT_ORDER = ("bf16", "fp16", "fp32")


@dataclass(frozen=True, slots=True)
class Target:
    """The target of files. root: the folder of -o. device: the device's name, not yet in the consumer's spelling.
    triton: the version that the results are from."""

    root: Path
    device: str
    arch: str
    triton: str = ""


@dataclass(frozen=True)
class Offer:
    """A config that can be exported for a size, with its times.

    problem, config: of the consumer's kind.
    time_us:   median kernel time at this size; None when the results file gives none.
    stage:     source of that time: ``results``, or ``finals`` or ``screen`` of the run's table.
    tuned, tuned_us: name and time of the size's own config, which this one stands in for when it is another.
    timings:   time by config name of all that the run's table timed for this size.
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
    """A reader of tuned configs for problems of one kind. Its files map keys to entries."""

    name: str
    kind = GemmProblem.kind
    device_key = "device"  # key of a results file's header with the device's name for this consumer; or ""
    grid: tuple[tuple[str, int], ...] = ()  # (key, M) of the entries that every file must have
    takes = ""  # the problems that it takes, in words, for messages
    splits_k = False  # its kernel may split K over the grid
    floor_stands_in = False  # a key without a near tuned M takes the config of a smaller M

    @abstractmethod
    def problem_fault(self, problem: Any, arch: str) -> str:
        """Why the consumer's kernels do not compute a problem; empty when they do."""

    def belongs_elsewhere(self, problem: Any) -> str:
        """Why a problem of its kind is tuned for another consumer; empty when it is not."""
        return ""

    @abstractmethod
    def config_fault(self, problem: Any, config: Any, arch: str) -> str:
        """Why the consumer cannot launch a config as it is; empty when it can."""

    @abstractmethod
    def places(self, problem: Any, target: Target) -> tuple[PurePosixPath, ...]:
        """The files for a problem's entry, below the folder of -o: one for each place where a version of it looks."""

    @abstractmethod
    def key(self, problem: Any) -> str:
        """The key of a problem in its file."""

    @abstractmethod
    def entry(self, offer: Offer, arch: str) -> Entry:
        """The value of the key."""

    def entry_at(self, place: PurePosixPath, offer: Offer, arch: str) -> Entry:
        """``entry``, of a consumer with several files for a size."""
        return self.entry(offer, arch)

    def order(self, key: str) -> tuple[Any, ...]:
        """Sort key of a key in its file. Raises ValueError for a key that the consumer's loader fails on."""
        return (key,)

    def rank(self, offer: Offer) -> tuple[Any, ...]:
        """Sort key of offers; of several for one key the least is taken."""
        return (offer.time_us is None, offer.time_us)

    def default(self, place: PurePosixPath, m: int, target: Target) -> Entry | None:
        """The entry that the consumer uses for an M without a file; None when unknown."""
        return None

    def default_config(self, problem: Any, arch: str) -> Any:
        """``default`` as a configuration of the family that is measured in place of the consumer's kernel."""
        return None

    def text(self, body: Body, target: Target) -> str:
        """A file's text."""
        return json.dumps(body, indent=4) + "\n"

    def load(self, path: Path) -> Body:
        """A file's entries. Raises UserError for a file that is not of this form."""
        return sidecar.read_entries(path)


class Served(ABC):
    """A consumer whose loader is known well enough to reproduce it, for serve-check."""

    name: str

    @abstractmethod
    def files(self, root: Path) -> tuple[list[SizeFile], list[str]]:
        """(files that the consumer's loader would open below a folder; remarks on files that it would not)."""

    def entries(self, path: Path) -> Body:
        """A file's entries. Raises UserError for a file that is not of this form."""
        return sidecar.read_entries(path)

    @abstractmethod
    def look_up(self, body: Mapping[str, Any], m: int) -> str:
        """The key used for M. Raises ValueError with the reason where the consumer's loader fails."""


@dataclass(frozen=True, slots=True)
class SizeFile:
    """One data file. label: such as ``N=7168,K=2048``. remark: under which condition it is read; empty for always."""

    path: Path
    label: str
    remark: str = ""


def output_rank(problem: GemmProblem) -> int:
    return OUTPUT_ORDER.index(problem.dtype_c) if problem.dtype_c in OUTPUT_ORDER else len(OUTPUT_ORDER)


def plain_gemm_fault(problem: GemmProblem) -> str:
    """Why a problem is not A @ B.T of a row-major activation and weight, without batch and epilogue."""
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
    """Why a kernel like gemm_tile (one program for each tile, pointer loads) cannot be launched with a config; or "".

    What the kernel supports: split_k, slices of K; xcds, the values of NUM_XCDS; stream_b, STREAM_B.
    """
    if config.family != "gemm_tile":
        return f"is of the family {config.family}, another kernel than the consumer's"
    if config.SPLIT_K > 1 and not split_k:
        return f"splits K in {config.SPLIT_K}, which the consumer's kernel cannot"
    if config.NUM_XCDS not in xcds:
        return f"deals tiles to {config.NUM_XCDS} chiplets, which the consumer's kernel does not"
    if config.STREAM_B and not stream_b:
        return "loads B past the nearest cache, which the consumer's kernel cannot"
    return ""


def tile_entry(config: KernelConfig) -> Entry:
    """The six keys that all consumers of tile configs share, in their usual order."""
    keys = ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "GROUP_SIZE_M", "num_warps", "num_stages")
    return {key: getattr(config, key) for key in keys}


def file_safe(name: str, hint: str) -> str:
    """A device's name as part of a file name. Raises UserError for one that cannot be."""
    if not name or not name.isprintable() or "/" in name or len(name.encode()) > MAX_NAME_BYTES:
        raise UserError(f"the device's name is {show(name)}", where="--device_name", accepted="a name", hint=hint)
    return name

"""The records that the stages pass to each other: frozen, picklable, made of plain scalars only.

A stage depends on these records and not on other stages. Sizes are in elements unless a name ends in a unit
(``_bytes``, ``_us``, ``_pct``).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol, runtime_checkable

from gemm_tuner.core.architecture import Architecture


@runtime_checkable
class Problem(Protocol):
    """One computation at one size. Hashable and picklable.

    kind:        what is computed, such as "gemm"; the name of its workload (``core.workload``).
    key:         unique among the problems of a kind, and usable as a file name.
    signature:   identifies everything of the problem that is in its source; problems of equal signature share a script.
    subject:     what computes it, for display, such as a kernel's name.
    shape:       its extents for display, such as "512 x 512 x 512".
    flops:       floating-point operations; 0 when unknown.
    bytes_moved: least possible traffic to device memory; 0 when unknown.
    rate_key:    key of ``Device.matmul_tflops`` for the rate of its operations; "" if they are not matrix products.
    """

    @property
    def kind(self) -> str: ...

    @property
    def key(self) -> str: ...

    @property
    def signature(self) -> str: ...

    @property
    def subject(self) -> str: ...

    @property
    def shape(self) -> str: ...

    @property
    def flops(self) -> float: ...

    @property
    def bytes_moved(self) -> float: ...

    @property
    def rate_key(self) -> str: ...

    def __hash__(self) -> int: ...

    def to_dict(self) -> dict[str, Any]:
        """The fields and ``kind`` as plain values; ``core.workload.problem_from_dict`` is the inverse."""


class Config(Protocol):
    """One configuration (point) of a space. Hashable and picklable; its fields are int, bool, str, or tuples of these.

    family:         the kernel family; also the name of the template.
    name:           unique within a problem. It is only compared, never parsed.
    kernel_symbol:  symbol of the compiled kernel; configurations that differ only in launch arguments may share it.
    simplicity:     sort key among equally fast configurations; the smallest is preferred.
    is_of_a_server: the kernel belongs to a serving framework, and only that framework can launch it.
    """

    @property
    def family(self) -> str: ...

    @property
    def name(self) -> str: ...

    @property
    def kernel_symbol(self) -> str: ...

    @property
    def simplicity(self) -> tuple[int, ...]: ...

    @property
    def is_of_a_server(self) -> bool: ...

    def __hash__(self) -> int: ...

    def to_dict(self) -> dict[str, Any]:
        """All fields by name, including ``family``."""

    def options(self) -> dict[str, Any]:
        """The fields as in a results file: without ``family`` and without fields that this configuration does not
        use."""


class Status(str, Enum):
    """The outcome of one configuration at one size; every configuration has exactly one."""

    OK = "ok"
    PRUNED = "pruned"
    COMPILE_ERROR = "compile_error"
    COMPILE_TIMEOUT = "compile_timeout"
    SPILLED = "spilled"
    OUT_OF_RESOURCES = "out_of_resources"
    LAUNCH_ERROR = "launch_error"
    TIMEOUT = "timeout"
    CRASHED = "crashed"
    MISSING_IN_TRACE = "missing_in_trace"
    EARLY_STOPPED = "early_stopped"
    UNSTABLE = "unstable"
    WRONG = "wrong"


class Verified(str, Enum):
    """How the result of a size's configuration was checked.

    TRUE:        compared with a reference, on the GPU.
    INTERPRETED: compared with a reference in Triton's interpreter, on the CPU.
    AGREED:      there is no reference; the results of several configurations were compared with each other.
    FALSE:       not checked.
    """

    TRUE = "true"
    INTERPRETED = "interpreted"
    AGREED = "agreed"
    FALSE = "false"

    @property
    def scalar(self) -> bool | str:
        """The value in a YAML or JSON file: true and false are booleans, the others text."""
        return {Verified.TRUE: True, Verified.FALSE: False}.get(self, self.value)


@dataclass(frozen=True, slots=True)
class Target:
    """What kernels are compiled for. backend: "cuda", "hip" or "cpu". arch: such as ``sm_90`` or ``gfx942``."""

    backend: str
    arch: str
    warp_size: int
    facts: Architecture


@dataclass(frozen=True, slots=True)
class Device:
    """The limits and speeds of one GPU. The speeds are used for predictions only, never for a measured result.

    matmul_tflops: dense matrix rate by input type, TFLOP/s.
    max_registers: largest number of registers of one thread.
    """

    name: str
    target: Target
    num_sms: int
    shared_memory_bytes: int
    shared_memory_per_sm_bytes: int
    registers_per_sm: int
    max_registers: int
    max_warps_per_sm: int
    l2_bytes: int
    memory_bytes: int
    dram_gbps: float
    l2_gbps: float
    matmul_tflops: tuple[tuple[str, float], ...]

    def tflops(self, dtype: str) -> float:
        return dict(self.matmul_tflops)[dtype]


@dataclass(frozen=True, slots=True)
class CompileResult:
    """The result of compiling one kernel for one specialization; configurations may share it.

    name:         the Config.kernel_symbol.
    spills:       registers (AMD) or bytes of stack (NVIDIA) that did not fit; 0 means none.
    shared_bytes: shared memory (LDS) of one block.
    binary_hash:  sha256 of the machine code without the kernel's name; equal hashes mean the same kernel, and where
                  ``Workload.hashes_launches`` the same call.
    cached:       the kernel was in the disk cache and was not compiled again.
    entries:      cache entries of the call's kernels, the main kernel first; ``Language.pack`` takes these names.
    """

    name: str
    specialization: str
    status: Status
    seconds: float = 0.0
    registers: int = 0
    spills: int = 0
    shared_bytes: int = 0
    binary_hash: str = ""
    cached: bool = False
    message: str = ""
    entries: tuple[str, ...] = ()


class Role(str, Enum):
    """What the samples of a finals process are used for: to choose the winner, or to publish its time.

    The published time must not come from the samples that chose: the minimum of noisy candidates is biased low. Where
    those that publish contradict the choice, ``decide.contradicted`` says which give it.
    """

    CHOOSE = "choose"
    PUBLISH = "publish"


@dataclass(frozen=True, slots=True)
class Timing:
    """Kernel times of one configuration at one size.

    samples_us: one value per timed call, in the order they ran; empty unless ``status`` is OK or EARLY_STOPPED. For a
                call of several kernels, it is the time from the first start to the last end if the profiler reports
                starts and the GPU's queue was full, else the sum of the kernels' times.
    process, role: of the finals; their processes are numbered from 0 within a run.
    kernels_us: for a call of several kernels, the median time of each, in launch order.
    """

    problem: Problem
    name: str
    status: Status
    samples_us: tuple[float, ...] = ()
    message: str = ""
    process: int = 0
    role: Role = Role.CHOOSE
    kernels_us: tuple[float, ...] = ()

    @property
    def failed(self) -> bool:
        """Whether the configuration itself failed: not where it was too slow to go on, or only the trace lacks it."""
        return self.status not in (Status.OK, Status.EARLY_STOPPED, Status.MISSING_IN_TRACE)

    @property
    def ended_its_process(self) -> bool:
        """Whether it crashed or hung, and may do so on every GPU."""
        return self.status in (Status.CRASHED, Status.TIMEOUT)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of one check of one configuration, at one size.

    error_over_bound: largest |error| / bound of all elements; a correct result has at most 1.
    worst_element:    (row, column) of that element.
    stable:           repeated calls gave the same bits; if False, worst_element is the first element that differed.
    how:              AGREED or FALSE without a reference; None if it was compared with a reference.
    """

    problem: Problem
    name: str
    ok: bool
    max_abs_error: float
    error_over_bound: float
    worst_element: tuple[int, int] = (0, 0)
    message: str = ""
    stable: bool = True
    how: Verified | None = None

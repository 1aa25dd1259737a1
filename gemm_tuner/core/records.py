"""The records that travel between the stages: frozen, picklable, and of plain scalars only.

A stage knows these and nothing of its neighbours. Sizes are in elements unless a name ends in
a unit (``_bytes``, ``_us``, ``_pct``).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol, runtime_checkable

from gemm_tuner.core.architecture import Architecture


@runtime_checkable
class Problem(Protocol):
    """What is computed, at one size. Hashable and picklable; equal ones are the same problem.

    kind:        what is computed, such as "gemm": names the workload (``core.workload``).
    key:         names the problem; safe as a file's name, and no two problems of a kind share one.
    signature:   names what is compiled into its kernels; problems of one signature have the same source.
    shape:       its extents for people to read, such as "512 x 512 x 512".
    flops:       floating-point operations; 0 when unknown.
    bytes_moved: fewest bytes through device memory; 0 when unknown.
    rate_key:    key of ``Device.matmul_tflops`` that its operations run at; "" when they are no matrix products.
    """

    @property
    def kind(self) -> str: ...

    @property
    def key(self) -> str: ...

    @property
    def signature(self) -> str: ...

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
        """Plain values by name, ``kind`` among them; ``core.workload.problem_from_dict`` reads it."""


class Config(Protocol):
    """One point of a space. Hashable and picklable; its fields are int, bool, str, or tuples of these.

    family:        the kernel family, which names the template.
    name:          unique within a problem; looked up, never parsed.
    kernel_symbol: of the compiled kernel, which configurations that differ in launch arguments alone may share.
    simplicity:    orders configurations that are equally fast: the least is preferred.
    is_of_a_server: its kernel is a server's own, which nothing but that server launches.
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
        """All fields by name, ``family`` among them."""

    def options(self) -> dict[str, Any]:
        """The fields as a results file shows them: without ``family``, those that are not used left out."""


class Status(str, Enum):
    """The end of a configuration of one size; every configuration has exactly one."""

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
    INTERPRETED: compared with a reference, in Triton's interpreter on the CPU.
    AGREED:      there is no reference; configurations were compared with each other.
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
    """What Triton compiles for; ``arch`` is ``sm_90`` or ``gfx942``. facts: what that architecture can do."""

    backend: str
    arch: str
    warp_size: int
    facts: Architecture


@dataclass(frozen=True, slots=True)
class Device:
    """The limits and speeds of one GPU. The speeds feed predictions only, never a result.

    matmul_tflops: dense matrix rate by input type, TFLOP/s.
    max_registers: most registers one thread can have.
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
    """The result of compiling one kernel, which configurations may share, for one specialization.

    name:         the Config.kernel_symbol.
    spills:       registers (AMD) or bytes of stack (NVIDIA) that did not fit; 0 means none.
    shared_bytes: shared memory (LDS) of one block.
    binary_hash:  sha256 of the machine code without its name; equal hashes are the same kernel.
    cached:       the kernel came from the disk cache and was not compiled again.
    entries:      of the cache, one a kernel of the call, the main one first: by these names the compiled kernels are
                  packed for another machine.
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
    """The use of the samples of a process of finals: to choose the winner, or to publish its time."""

    CHOOSE = "choose"
    PUBLISH = "publish"


@dataclass(frozen=True, slots=True)
class Timing:
    """Kernel time of one configuration for one size: all kernels of one call, from the first start to the last end
    where the profiler and a full queue let that be known, else summed.

    The samples are the timed calls in the order they ran; empty unless ``status`` is OK or
    EARLY_STOPPED. process, role: of finals; their processes are numbered from 0 within a run.
    kernels_us: of a call of several kernels, the median own time of each, in their order.
    """

    problem: Problem
    name: str
    status: Status
    samples_us: tuple[float, ...] = ()
    message: str = ""
    process: int = 0
    role: Role = Role.CHOOSE
    kernels_us: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """One check of one configuration against the reference, at one size.

    error_over_bound: largest |error| / bound over all elements; at most 1 when right.
    worst_element:    (row, column) of that element.
    stable:           the same call gave the same bits each time; else worst_element is the first that differed.
    how:              AGREED or FALSE; None where it was compared with a reference.
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

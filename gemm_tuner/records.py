"""The records that travel between the stages: frozen, picklable, and of plain scalars only.

A stage knows these and nothing of its neighbours. Sizes are in elements unless a name ends in
a unit (``_bytes``, ``_us``, ``_pct``).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from enum import Enum
from typing import Any

from gemm_tuner.dtypes import DTYPES


class Layout(str, Enum):
    """How a matrix lies in memory: ROW has its columns next to each other, COL its rows."""

    ROW = "row"
    COL = "col"


class Status(str, Enum):
    """Where a configuration of one size ended; every configuration has exactly one."""

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


@dataclass(frozen=True, slots=True)
class GemmProblem:
    """C[m, n] = A[m, k] @ B[k, n] (+ bias[n]); products are summed in fp32, C is dtype_c."""

    m: int
    n: int
    k: int
    dtype_a: str = "bf16"
    dtype_b: str = "bf16"
    dtype_c: str = "bf16"
    layout_a: Layout = Layout.ROW
    layout_b: Layout = Layout.ROW
    epilogue: str = "none"

    @property
    def flops(self) -> int:
        """Floating-point operations of the product: one multiply and one add a term."""
        return 2 * self.m * self.n * self.k

    @property
    def bytes_moved(self) -> int:
        """Fewest bytes through device memory: A, B and the bias read once, C written once."""
        size_a, size_b, size_c = (DTYPES[d].size_bytes for d in (self.dtype_a, self.dtype_b, self.dtype_c))
        bias = self.n * size_c if self.has_bias else 0
        return self.m * self.k * size_a + self.k * self.n * size_b + self.m * self.n * size_c + bias

    @property
    def has_bias(self) -> bool:
        return self.epilogue == "bias"

    @property
    def class_key(self) -> str:
        """Names what is compiled into a kernel and not passed to it: types, layouts, epilogue."""
        types = (
            self.dtype_a
            if self.dtype_a == self.dtype_b == self.dtype_c
            else "_".join((self.dtype_a, self.dtype_b, self.dtype_c))
        )
        layouts = "".join("n" if layout == Layout.ROW else "t" for layout in (self.layout_a, self.layout_b))
        return f"{types}_{layouts}" + ("_bias" if self.has_bias else "")

    @property
    def key(self) -> str:
        """A file-name-safe name, such as ``4096x4096x4096_bf16_nn``."""
        return f"{self.m}x{self.n}x{self.k}_{self.class_key}"

    def to_dict(self) -> dict[str, Any]:
        row = asdict(self)
        row["layout_a"], row["layout_b"] = self.layout_a.value, self.layout_b.value
        return row

    @classmethod
    def from_dict(cls, row: dict[str, Any]) -> GemmProblem:
        return cls(**{**row, "layout_a": Layout(row["layout_a"]), "layout_b": Layout(row["layout_b"])})


@dataclass(frozen=True, slots=True)
class KernelConfig:
    """One point of the space. Field names are those of the published tuned-config files.

    waves_per_eu, matrix_instr_nonkdim and kpack mean something on AMD only and are 0 elsewhere.
    """

    family: str
    BLOCK_SIZE_M: int
    BLOCK_SIZE_N: int
    BLOCK_SIZE_K: int
    GROUP_SIZE_M: int
    SPLIT_K: int
    num_warps: int
    num_stages: int
    waves_per_eu: int = 0
    matrix_instr_nonkdim: int = 0
    kpack: int = 0

    @property
    def name(self) -> str:
        """The canonical name, which is also the kernel's symbol; looked up, never parsed back."""
        parts = [self.family, *(f"{short}{getattr(self, field)}" for field, short in NAME_PARTS)]
        if self.kpack:
            parts += [f"{short}{getattr(self, field)}" for field, short in AMD_NAME_PARTS]
        return "_".join(parts)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def options(self) -> dict[str, int]:
        """The fields as a results file shows them: those of the other vendor left out."""
        row = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "family"}
        if not self.kpack:
            for field, _ in AMD_NAME_PARTS:
                del row[field]
        return row


NAME_PARTS = (
    ("BLOCK_SIZE_M", "BM"),
    ("BLOCK_SIZE_N", "BN"),
    ("BLOCK_SIZE_K", "BK"),
    ("GROUP_SIZE_M", "GM"),
    ("SPLIT_K", "SK"),
    ("num_warps", "W"),
    ("num_stages", "S"),
)
AMD_NAME_PARTS = (("waves_per_eu", "EU"), ("matrix_instr_nonkdim", "MI"), ("kpack", "KP"))
CONFIG_FIELDS = tuple(f.name for f in fields(KernelConfig))


@dataclass(frozen=True, slots=True)
class Target:
    """What Triton compiles for; ``arch`` is ``sm_90`` or ``gfx942``."""

    backend: str
    arch: str
    warp_size: int


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
    """What compiling one configuration for one specialisation gave.

    spills:       registers (AMD) or bytes of stack (NVIDIA) that did not fit; 0 means none.
    shared_bytes: shared memory (LDS) of one block.
    binary_hash:  sha256 of the machine code; equal hashes are the same kernel.
    cached:       the kernel came from the disk cache and was not compiled again.
    """

    name: str
    specialisation: str
    status: Status
    seconds: float = 0.0
    registers: int = 0
    spills: int = 0
    shared_bytes: int = 0
    binary_hash: str = ""
    cached: bool = False
    message: str = ""


@dataclass(frozen=True, slots=True)
class Timing:
    """Kernel time of one configuration for one size: all kernels of one call, summed.

    The samples are the timed calls in the order they ran; empty unless ``status`` is OK or
    EARLY_STOPPED.
    """

    problem: GemmProblem
    name: str
    status: Status
    samples_us: tuple[float, ...] = ()
    message: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """One check of one configuration against the reference, at one size.

    error_over_bound: largest |error| / bound over all elements; at most 1 when right.
    worst_element:    (row, column) of that element.
    """

    problem: GemmProblem
    name: str
    ok: bool
    max_abs_error: float
    error_over_bound: float
    worst_element: tuple[int, int] = (0, 0)
    message: str = ""


@dataclass(frozen=True, slots=True)
class Choice:
    """What a size was given, and what is known of it; times in microseconds.

    source:     'measured', 'replayed' or 'predicted'; a predicted time was never run.
    gap_pct:    how much slower the runner-up is; None without one.
    tie:        the runner-up is inside the spread of the samples.
    vendor_us:  the vendor library's time for the same call; None when it was not timed.
    """

    problem: GemmProblem
    config: KernelConfig
    source: str
    verified: bool
    median_us: float
    p20_us: float | None
    p80_us: float | None
    num_samples: int
    vendor_us: float | None
    max_abs_error: float
    error_over_bound: float
    runner_up: str
    gap_pct: float | None
    tie: bool
    roofline_pct: float

    @property
    def tflops(self) -> float:
        return self.problem.flops / self.median_us / 1e6

    @property
    def vendor_ratio(self) -> float | None:
        """Vendor time over ours: above 1 means that ours is faster."""
        return self.vendor_us / self.median_us if self.vendor_us else None

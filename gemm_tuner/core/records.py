"""The records that travel between the stages: frozen, picklable, and of plain scalars only.

A stage knows these and nothing of its neighbours. Sizes are in elements unless a name ends in
a unit (``_bytes``, ``_us``, ``_pct``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from enum import Enum
from typing import Any

from gemm_tuner.core.architecture import Architecture
from gemm_tuner.gemm.problem import GemmProblem


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
class KernelConfig:
    """One point of the space. Field names are those of the published tuned-config files.

    The fields after num_stages are not for every family and GPU; their defaults say "not used".

    EPILOGUE_SUBTILE: C is stored in this many parts of BLOCK_SIZE_N / EPILOGUE_SUBTILE columns.
    PROGRAMS_PER_SM:  of a persistent grid; 0 starts one program a tile.
    WARP_SPECIALIZE:  1: loading and multiplying are shared out between warps.
    NUM_XCDS:         tiles that lie together go to one of this many chiplets (AMD).
    STREAM_B:         1: B is loaded past the nearest cache (.cg), which then keeps A.
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
    EPILOGUE_SUBTILE: int = 1
    PROGRAMS_PER_SM: int = 0
    WARP_SPECIALIZE: int = 0
    NUM_XCDS: int = 1
    STREAM_B: int = 0
    waves_per_eu: int = 0
    matrix_instr_nonkdim: int = 0
    kpack: int = 0

    @property
    def name(self) -> str:
        """The canonical name; looked up, never parsed back."""
        return _joined(self.family, self._parts())

    @property
    def kernel_symbol(self) -> str:
        """The kernel's symbol. Configurations that differ in launch arguments alone share their kernel: the name has
        no GROUP_SIZE_M, which is a constant in servers' own kernels only, and of PROGRAMS_PER_SM only that there are
        any."""
        parts: dict[str, int | str] = {**self._parts()}
        if not self.is_of_a_server:
            del parts["GM"]
        if "PS" in parts:
            parts["PS"] = ""
        return _joined(self.family, parts)

    @property
    def is_of_a_server(self) -> bool:
        """Whether its kernel is a server's own, which nothing but that server launches."""
        return self.family in KERNEL_FAMILIES.values()

    def _parts(self) -> dict[str, int]:
        """The values that the name shows, by their short names."""
        used = [(field, short) for field, short in FAMILY_NAME_PARTS if getattr(self, field) != UNUSED[field]]
        amd = AMD_NAME_PARTS if self.kpack else ()
        return {short: getattr(self, field) for field, short in (*NAME_PARTS, *used, *amd)}

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def options(self) -> dict[str, int]:
        """The fields as a results file shows them: those that are not used left out."""
        row = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "family"}
        unused = [field for field, _ in FAMILY_NAME_PARTS if row[field] == UNUSED[field]]
        unused += [field for field, _ in AMD_NAME_PARTS if not self.kpack]
        return {field: value for field, value in row.items() if field not in unused}


def _joined(family: str, parts: Mapping[str, int | str]) -> str:
    return "_".join([family, *(f"{short}{value}" for short, value in parts.items())])


# The families of servers' own kernels (--kernel_from), by server.
KERNEL_FAMILIES = {"vllm": "vllm_block_fp8", "sglang": "sglang_block_fp8"}
NAME_PARTS = (
    ("BLOCK_SIZE_M", "BM"),
    ("BLOCK_SIZE_N", "BN"),
    ("BLOCK_SIZE_K", "BK"),
    ("GROUP_SIZE_M", "GM"),
    ("SPLIT_K", "SK"),
    ("num_warps", "W"),
    ("num_stages", "S"),
)
# Not for every family: named where they are not at their defaults.
FAMILY_NAME_PARTS = (
    ("EPILOGUE_SUBTILE", "ES"),
    ("PROGRAMS_PER_SM", "PS"),
    ("WARP_SPECIALIZE", "WS"),
    ("NUM_XCDS", "XC"),
    ("STREAM_B", "SB"),
)
AMD_NAME_PARTS = (("waves_per_eu", "EU"), ("matrix_instr_nonkdim", "MI"), ("kpack", "KP"))
# Fields that are powers of two; those of THIRDS may be three times one (docs/rules.md).
POWERS_OF_TWO = ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "num_warps", "EPILOGUE_SUBTILE")
THIRDS = ("BLOCK_SIZE_N", "EPILOGUE_SUBTILE")


def has_legal_shape(field: str, value: int) -> bool:
    """Whether a positive value of a field is a power of two where it must be."""
    if field in THIRDS and value % 3 == 0:
        value //= 3
    return field not in POWERS_OF_TWO or value & (value - 1) == 0


def legal_shapes(field: str) -> str:
    """What ``has_legal_shape`` takes, in words; empty where that is anything."""
    if field not in POWERS_OF_TWO:
        return ""
    return "a power of two, or three times one" if field in THIRDS else "a power of two"


CONFIG_FIELDS = tuple(f.name for f in fields(KernelConfig))
UNUSED: dict[str, int] = {f.name: f.default for f in fields(KernelConfig) if isinstance(f.default, int)}


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
    """What compiling one kernel, which configurations may share, for one specialisation gave.

    name:         the KernelConfig.binary_name.
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
    """What the samples of a process of finals are for: to choose the winner, or to say what its time is."""

    CHOOSE = "choose"
    PUBLISH = "publish"


@dataclass(frozen=True, slots=True)
class Timing:
    """Kernel time of one configuration for one size: all kernels of one call, summed.

    The samples are the timed calls in the order they ran; empty unless ``status`` is OK or
    EARLY_STOPPED. process, role: of finals; their processes are numbered from 0 within a run.
    """

    problem: GemmProblem
    name: str
    status: Status
    samples_us: tuple[float, ...] = ()
    message: str = ""
    process: int = 0
    role: Role = Role.CHOOSE


@dataclass(frozen=True, slots=True)
class Verdict:
    """One check of one configuration against the reference, at one size.

    error_over_bound: largest |error| / bound over all elements; at most 1 when right.
    worst_element:    (row, column) of that element.
    stable:           the same call gave the same bits each time; else worst_element is the first that differed.
    """

    problem: GemmProblem
    name: str
    ok: bool
    max_abs_error: float
    error_over_bound: float
    worst_element: tuple[int, int] = (0, 0)
    message: str = ""
    stable: bool = True


@dataclass(frozen=True, slots=True)
class ServedChoice:
    """The best configuration of a size that a consumer can launch.

    time_us:    median kernel time in the finals of the size, or the model's time where nothing ran.
    default_us: of what the consumer launches without a tuned file, in the same finals; None where it was not timed.
    kernel:     the consumer's own kernel that was measured, as --kernel_from found it; empty where config's family
                stood in for it.
    processes, process_spread_pct: of its times in the finals, as in Choice.
    """

    consumer: str
    config: KernelConfig
    time_us: float
    verified: Verified
    default_us: float | None = None
    kept_from: str = ""
    kernel: str = ""
    processes: int | None = None
    process_spread_pct: float | None = None

    @property
    def measured(self) -> KernelConfig:
        """The configuration as it was launched."""
        family = KERNEL_FAMILIES.get(self.consumer) if self.kernel else None
        return replace(self.config, family=family) if family else self.config


@dataclass(frozen=True, slots=True)
class Choice:
    """What a size was given, and what is known of it; times in microseconds.

    source:     'measured', 'replayed' or 'predicted'; a predicted time was never run.
    verified:   how the result was checked.
    served:     for the consumers of --serve, in their order.
    gap_pct:    how much slower the runner-up is; None without one.
    tie:        noise cannot tell another finalist from it.
    processes:  of the finals in which it ran; None when that is not known.
    process_spread_pct: how far its times in them lay apart, percent of the least; None for fewer than two.
    vendor_us:  the vendor library's time for the same call; None when it was not timed.
    overruled:  the finalists that came before it and were passed over: name and reason.
    """

    problem: GemmProblem
    config: KernelConfig
    source: str
    verified: Verified
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
    processes: int | None = None
    process_spread_pct: float | None = None
    served: tuple[ServedChoice, ...] = ()
    overruled: tuple[tuple[str, str], ...] = ()

    @property
    def tflops(self) -> float:
        return self.problem.flops / self.median_us / 1e6

    @property
    def vendor_ratio(self) -> float | None:
        """Vendor time over ours: above 1 means that ours is faster."""
        return self.vendor_us / self.median_us if self.vendor_us else None

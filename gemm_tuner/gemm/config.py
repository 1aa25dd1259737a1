"""A configuration of the GEMM kernels: fields, names, and legal values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from gemm_tuner.core.records import Config


@dataclass(frozen=True, slots=True)
class KernelConfig:
    """One configuration. The field names are those of published tuned configuration files.

    The fields after num_stages are not used by every family and GPU; their defaults mean "not used".

    EPILOGUE_SUBTILE: C is stored in this many parts of BLOCK_SIZE_N / EPILOGUE_SUBTILE columns.
    PROGRAMS_PER_SM:  programs per SM of a persistent grid; 0: one program per tile.
    WARP_SPECIALIZE:  1: some warps load, others multiply.
    NUM_XCDS:         neighbouring tiles are assigned to the same one of this many chiplets (AMD).
    STREAM_B:         1: loads of B bypass L1 (.cg), which then keeps A.
    ROW_STEP:         a tile has every ROW_STEP-th row of C. With 8, TMA can store C at any row alignment.
    PACK_BLOCK:       elements of an operand that one program packs; 0: the family does not pack.
    CLUSTER_M, CLUSTER_N: thread blocks of a cluster along M and N, which share what they load.
    PINGPONG:         1: two warp groups take turns, each with a tile of its own; 0: all multiply one tile.
    SWAP_AB:          1: C^T = B^T A^T is computed: BLOCK_SIZE_M and CLUSTER_M lie along N, _N along M.
    num_warps, num_stages: 0 where the kernel's library chooses them.
    waves_per_eu, matrix_instr_nonkdim and kpack apply to AMD only and are 0 elsewhere.
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
    ROW_STEP: int = 1
    PACK_BLOCK: int = 0
    CLUSTER_M: int = 1
    CLUSTER_N: int = 1
    PINGPONG: int = 0
    SWAP_AB: int = 0
    waves_per_eu: int = 0
    matrix_instr_nonkdim: int = 0
    kpack: int = 0

    @property
    def name(self) -> str:
        """The canonical name; only compared, never parsed."""
        return _joined(self.family, self._parts())

    @property
    def kernel_symbol(self) -> str:
        """The kernel's symbol. Configurations that differ only in launch arguments share a kernel, so the symbol leaves
        out GROUP_SIZE_M (a constant only in kernels of servers), and of PROGRAMS_PER_SM it only tells whether it is
        0."""
        parts: dict[str, int | str] = {**self._parts()}
        if not self.is_of_a_server:
            del parts["GM"]
        if "PS" in parts:
            parts["PS"] = ""
        return _joined(self.family, parts)

    @property
    def simplicity(self) -> tuple[int, ...]:
        """Sort key: Triton before a library of an optional language, which chooses warps and stages; then fewer kernels
        and programs, then fewer stages and warps, then smaller tiles."""
        return (
            int(self.num_warps == 0),
            *(self.SPLIT_K, self.WARP_SPECIALIZE, self.num_stages, self.num_warps),
            *(self.EPILOGUE_SUBTILE, self.GROUP_SIZE_M),
            self.BLOCK_SIZE_M * self.BLOCK_SIZE_N * self.BLOCK_SIZE_K,
        )

    @property
    def is_of_a_server(self) -> bool:
        """Whether the kernel belongs to a server (--kernel_from), and only that server can launch it."""
        return self.family in KERNEL_FAMILIES.values()

    def _parts(self) -> dict[str, int]:
        """The values in the name, by their short names."""
        plain = [
            (field, short) for field, short in NAME_PARTS if field not in CHOSEN_BY_LIBRARY or getattr(self, field)
        ]
        used = [(field, short) for field, short in FAMILY_NAME_PARTS if getattr(self, field) != UNUSED[field]]
        amd = AMD_NAME_PARTS if self.kpack else ()
        return {short: getattr(self, field) for field, short in (*plain, *used, *amd)}

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def options(self) -> dict[str, int]:
        """The fields as in a results file, without unused ones."""
        row = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "family"}
        unused = [field for field, _ in FAMILY_NAME_PARTS if row[field] == UNUSED[field]]
        unused += [field for field in CHOSEN_BY_LIBRARY if not row[field]]
        unused += [field for field, _ in AMD_NAME_PARTS if not self.kpack]
        return {field: value for field, value in row.items() if field not in unused}


def _joined(family: str, parts: Mapping[str, int | str]) -> str:
    return "_".join([family, *(f"{short}{value}" for short, value in parts.items())])


# The families of kernels that belong to servers (--kernel_from), by server.
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
# Not used by every family: in the name only when not at their defaults.
FAMILY_NAME_PARTS = (
    ("EPILOGUE_SUBTILE", "ES"),
    ("PROGRAMS_PER_SM", "PS"),
    ("WARP_SPECIALIZE", "WS"),
    ("NUM_XCDS", "XC"),
    ("STREAM_B", "SB"),
    ("ROW_STEP", "RS"),
    ("PACK_BLOCK", "PB"),
    ("CLUSTER_M", "CM"),
    ("CLUSTER_N", "CN"),
    ("PINGPONG", "PP"),
    ("SWAP_AB", "AB"),
)
AMD_NAME_PARTS = (("waves_per_eu", "EU"), ("matrix_instr_nonkdim", "MI"), ("kpack", "KP"))
# Fields that must be powers of two; those in THIRDS may also be three times a power of two (docs/rules.md).
POWERS_OF_TWO = (
    *("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "num_warps", "EPILOGUE_SUBTILE"),
    *("ROW_STEP", "PACK_BLOCK"),
)
THIRDS = ("BLOCK_SIZE_N", "EPILOGUE_SUBTILE")


# Of kernels by warp groups that are not Triton's.
MULTIPLES = {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 8, "BLOCK_SIZE_K": 16}
CHOSEN_BY_LIBRARY = ("num_warps", "num_stages")


def has_legal_shape(field: str, value: int, *, of_library: bool = False) -> bool:
    """Whether a value of a field satisfies POWERS_OF_TWO and THIRDS; of_library: MULTIPLES and CHOSEN_BY_LIBRARY."""
    if of_library and field in MULTIPLES:
        return value % MULTIPLES[field] == 0
    if of_library and field in CHOSEN_BY_LIBRARY:
        return value == 0
    if field in THIRDS and value % 3 == 0:
        value //= 3
    return field not in POWERS_OF_TWO or value & (value - 1) == 0


def legal_shapes(field: str, *, of_library: bool = False) -> str:
    """The values that ``has_legal_shape`` accepts, in words; "" if it accepts all."""
    if of_library and field in (*MULTIPLES, *CHOSEN_BY_LIBRARY):
        return f"a multiple of {MULTIPLES[field]}" if field in MULTIPLES else "0: the library chooses"
    if field not in POWERS_OF_TWO:
        return ""
    return "a power of two, or three times one" if field in THIRDS else "a power of two"


CONFIG_FIELDS = tuple(f.name for f in fields(KernelConfig))
UNUSED: dict[str, int] = {f.name: f.default for f in fields(KernelConfig) if isinstance(f.default, int)}


def tile(config: Config) -> KernelConfig:
    """``config`` as a KernelConfig. Raises TypeError for another type."""
    if not isinstance(config, KernelConfig):
        raise TypeError(f"{config.name} is no configuration of a GEMM")
    return config

"""A configuration of the GEMM kernels: its fields, its names, and which values are legal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from gemm_tuner.core.records import Config


@dataclass(frozen=True, slots=True)
class KernelConfig:
    """One point of the space. Field names are those of the published tuned-config files.

    The fields after num_stages are not for every family and GPU; their defaults say "not used".

    EPILOGUE_SUBTILE: C is stored in this many parts of BLOCK_SIZE_N / EPILOGUE_SUBTILE columns.
    PROGRAMS_PER_SM:  of a persistent grid; 0 starts one program a tile.
    WARP_SPECIALIZE:  1: loading and multiplying are shared out between warps.
    NUM_XCDS:         tiles that lie together go to one of this many chiplets (AMD).
    STREAM_B:         1: B is loaded past the nearest cache (.cg), which then keeps A.
    ROW_STEP:         a tile has every so-many-th row of C; with 8, TMA stores C wherever its rows start.
    PACK_BLOCK:       elements of an operand that one program packs; 0: the family packs none.
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
    ROW_STEP: int = 1
    PACK_BLOCK: int = 0
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
    def simplicity(self) -> tuple[int, ...]:
        """Fewer kernels and programs, then fewer stages and warps, then the smaller tile."""
        return (
            *(self.SPLIT_K, self.WARP_SPECIALIZE, self.num_stages, self.num_warps),
            *(self.EPILOGUE_SUBTILE, self.GROUP_SIZE_M),
            self.BLOCK_SIZE_M * self.BLOCK_SIZE_N * self.BLOCK_SIZE_K,
        )

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
    ("ROW_STEP", "RS"),
    ("PACK_BLOCK", "PB"),
)
AMD_NAME_PARTS = (("waves_per_eu", "EU"), ("matrix_instr_nonkdim", "MI"), ("kpack", "KP"))
# Fields that are powers of two; those of THIRDS may be three times one (docs/rules.md).
POWERS_OF_TWO = (
    *("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "num_warps", "EPILOGUE_SUBTILE"),
    *("ROW_STEP", "PACK_BLOCK"),
)
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


def tile(config: Config) -> KernelConfig:
    """The configuration as one of this kind. Raises TypeError for another."""
    if not isinstance(config, KernelConfig):
        raise TypeError(f"{config.name} is no configuration of a GEMM")
    return config

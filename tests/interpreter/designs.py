"""Which kernels, problems and sizes the interpreter meets: what each family takes, and designs that cover all pairs."""

from __future__ import annotations

import functools
import itertools
import random
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from case_runner import Case

from gemm_tuner.core.architecture import Architecture
from gemm_tuner.core.dtypes import DTYPES
from gemm_tuner.core.records import Target
from gemm_tuner.gemm import descriptors
from gemm_tuner.gemm.combinations import first_fault
from gemm_tuner.gemm.config import KernelConfig
from gemm_tuner.gemm.problem import ACTIVATIONS, SCALE_BLOCK, SCALINGS, GemmProblem, Layout
from gemm_tuner.gemm.specialization import rows_of_tiles
from gemm_tuner.source import codegen

TEMPLATES = Path(__file__).resolve().parents[2] / "templates"
ROW, COL = Layout.ROW, Layout.COL
LAYOUTS = tuple(itertools.product((ROW, COL), (ROW, COL)))
# The interpreter's kernels differ by these alone: loads through pointers, or through TMA descriptors.
POINTERS = Target("hip", "gfx942", 64, Architecture("mfma"))
DESCRIPTORS = Target("cuda", "sm_90", 32, Architecture("wgmma", tma=True))
CHUNK_BYTES = 16  # what rows are multiples of that descriptors load
MOST_BLOCKS = 160  # of K, over all tiles: what the interpreter may take for one case

# dtype_a, dtype_b, dtype_c, precision
TYPES = {
    "bf16": ("bf16", "bf16", "bf16", "ieee"),
    "bf16 to fp32": ("bf16", "bf16", "fp32", "ieee"),
    "fp16": ("fp16", "fp16", "fp16", "ieee"),
    "fp16 to bf16": ("fp16", "fp16", "bf16", "ieee"),
    "fp32": ("fp32", "fp32", "fp32", "ieee"),
    "tf32": ("fp32", "fp32", "fp16", "tf32"),
    "e4m3": ("fp8_e4m3", "fp8_e4m3", "bf16", "ieee"),
    "e5m2": ("fp8_e5m2", "fp8_e5m2", "fp32", "ieee"),
    "e4m3 by e5m2": ("fp8_e4m3", "fp8_e5m2", "fp16", "ieee"),
    "e4m3 fnuz": ("fp8_e4m3_fnuz", "fp8_e4m3_fnuz", "bf16", "ieee"),
    "e5m2 by e4m3 fnuz": ("fp8_e5m2_fnuz", "fp8_e4m3_fnuz", "fp32", "ieee"),
    "int8": ("int8", "int8", "int32", "ieee"),
    "int8 to bf16": ("int8", "int8", "bf16", "ieee"),
    "int8 to fp32": ("int8", "int8", "fp32", "ieee"),
}


@dataclass(frozen=True)
class Variant:
    """A family as it loads its tiles, with configurations of few small tiles."""

    family: str
    target: Target
    configs: tuple[KernelConfig, ...]

    @property
    def by_descriptor(self) -> bool:
        return descriptors.loads_by_descriptor(self.family, self.target)


def config(family: str, *blocks: int, group: int = 1, split_k: int = 1, stages: int = 2, **more: int) -> KernelConfig:
    return KernelConfig(family, *blocks, group, split_k, 4, stages, **more)


def persistent(by_descriptor: bool) -> tuple[KernelConfig, ...]:
    """One tile a program, fewer programs than tiles, and more; C in 1, 2, 4 and 3 parts; few slices, and many."""
    name = "gemm_persistent"
    both = (
        config(name, 16, 16, 16),
        config(name, 16, 32, 32, group=2, PROGRAMS_PER_SM=1, EPILOGUE_SUBTILE=2),
        config(name, 32, 32, 16, group=8, PROGRAMS_PER_SM=2, EPILOGUE_SUBTILE=4),
        config(name, 32, 64, 64, PROGRAMS_PER_SM=1),
    )
    slices = (
        config(name, 16, 32, 16, split_k=27),
        config(name, 32, 32, 32, split_k=3, group=2, PROGRAMS_PER_SM=1, EPILOGUE_SUBTILE=2),
    )
    if not by_descriptor:
        chiplets = config(name, 16, 16, 32, group=2, PROGRAMS_PER_SM=3, NUM_XCDS=8, STREAM_B=1)
        return (*both, chiplets, config(name, 32, 256, 128, NUM_XCDS=8, EPILOGUE_SUBTILE=2), *slices)
    return (
        *both,
        config(name, 16, 48, 32, PROGRAMS_PER_SM=1, EPILOGUE_SUBTILE=3),
        config(name, 16, 96, 16, group=2, EPILOGUE_SUBTILE=3),
        config(name, 32, 32, 32, group=2, PROGRAMS_PER_SM=1, WARP_SPECIALIZE=1),
        config(name, 16, 256, 128, PROGRAMS_PER_SM=1, WARP_SPECIALIZE=1, EPILOGUE_SUBTILE=2),
        *slices,
    )


def split_k(by_descriptor: bool) -> tuple[KernelConfig, ...]:
    """Few slices, and so many that some have no block of K at all."""
    name = "gemm_split_k"
    both = (
        config(name, 16, 16, 16, split_k=2),
        config(name, 32, 32, 16, group=2, split_k=4, EPILOGUE_SUBTILE=4),
        config(name, 16, 64, 32, group=8, split_k=8, EPILOGUE_SUBTILE=2),
        config(name, 32, 256, 128, split_k=2),
    )
    if by_descriptor:
        return both
    return (*both, config(name, 32, 16, 32, group=2, split_k=3, NUM_XCDS=8, STREAM_B=1))


def stream_k(by_descriptor: bool) -> tuple[KernelConfig, ...]:
    """Grids of 4, 8 and 12 programs."""
    name = "gemm_stream_k"
    both = (
        config(name, 16, 16, 16, PROGRAMS_PER_SM=1),
        config(name, 32, 32, 16, group=2, PROGRAMS_PER_SM=2, EPILOGUE_SUBTILE=4),
        config(name, 16, 64, 32, group=8, PROGRAMS_PER_SM=1, EPILOGUE_SUBTILE=2),
        config(name, 32, 256, 128, PROGRAMS_PER_SM=1),
    )
    if by_descriptor:
        return both
    return (*both, config(name, 32, 16, 32, group=2, PROGRAMS_PER_SM=3, NUM_XCDS=8, STREAM_B=1))


def packed(by_descriptor: bool) -> tuple[KernelConfig, ...]:
    """Tiles of neighbouring rows and of every 8th, K whole and in few slices and many, one tile a program and more."""
    name = "gemm_packed"
    both = (
        config(name, 16, 16, 16, PACK_BLOCK=1024),
        config(name, 32, 32, 16, group=2, PROGRAMS_PER_SM=2, EPILOGUE_SUBTILE=2, PACK_BLOCK=256),
        config(name, 16, 32, 32, split_k=3, PACK_BLOCK=512),
        config(name, 16, 64, 32, split_k=9, group=8, PROGRAMS_PER_SM=1, EPILOGUE_SUBTILE=4, PACK_BLOCK=1024),
        config(name, 32, 256, 128, PACK_BLOCK=2048),
    )
    if not by_descriptor:
        return (*both, config(name, 16, 16, 32, group=2, PROGRAMS_PER_SM=3, NUM_XCDS=8, STREAM_B=1, PACK_BLOCK=1024))
    return (
        *both,
        config(name, 16, 16, 16, ROW_STEP=8, PACK_BLOCK=512),
        config(name, 16, 64, 16, group=8, PROGRAMS_PER_SM=1, EPILOGUE_SUBTILE=4, ROW_STEP=8, PACK_BLOCK=1024),
        config(name, 16, 48, 32, PROGRAMS_PER_SM=2, EPILOGUE_SUBTILE=3, ROW_STEP=8, PACK_BLOCK=1024),
        config(name, 16, 96, 32, EPILOGUE_SUBTILE=3, PACK_BLOCK=1024),
    )


TILE = (
    config("gemm_tile", 16, 16, 16),
    config("gemm_tile", 32, 16, 32, group=2),
    config("gemm_tile", 16, 32, 16, group=8, NUM_XCDS=8),
    config("gemm_tile", 16, 16, 16, group=2, split_k=2, STREAM_B=1),
    config("gemm_tile", 32, 64, 32, split_k=8, NUM_XCDS=8),
    config("gemm_tile", 32, 256, 128),
)
VECTOR = (
    config("gemv", 1, 16, 32, stages=1),
    config("gemv", 1, 64, 64, split_k=2),
    config("gemv", 2, 32, 16, split_k=4),
    config("gemv", 4, 16, 128),
    config("gemv", 8, 32, 32),
    config("gemv", 16, 1, 64),
    config("gemv", 16, 16, 16),
    config("gemv", 16, 64, 32, split_k=3),
)
VARIANTS = {
    "gemm_tile": Variant("gemm_tile", POINTERS, TILE),
    "gemm_persistent, pointers": Variant("gemm_persistent", POINTERS, persistent(False)),
    "gemm_persistent, descriptors": Variant("gemm_persistent", DESCRIPTORS, persistent(True)),
    "gemm_split_k, pointers": Variant("gemm_split_k", POINTERS, split_k(False)),
    "gemm_split_k, descriptors": Variant("gemm_split_k", DESCRIPTORS, split_k(True)),
    "gemm_stream_k, pointers": Variant("gemm_stream_k", POINTERS, stream_k(False)),
    "gemm_stream_k, descriptors": Variant("gemm_stream_k", DESCRIPTORS, stream_k(True)),
    "gemm_packed, pointers": Variant("gemm_packed", POINTERS, packed(False)),
    "gemm_packed, descriptors": Variant("gemm_packed", DESCRIPTORS, packed(True)),
    "gemv": Variant("gemv", POINTERS, VECTOR),
}

# (m, n, k): ones, odd numbers, primes, one more and one less than a tile, even ones; the last need several scales.
ODD = ((1, 1, 1), (1, 17, 7), (7, 1, 17), (17, 7, 1), (1, 33, 64), (31, 1, 33), (33, 31, 47), (17, 17, 128))
SIZES = (*ODD, (32, 32, 128), (24, 40, 72), (109, 49, 22), (5, 61, 211), (40, 290, 300))
# Rows of whole 16 bytes, of fp8, 16-bit types and fp32; then sizes that are free in one layout or another.
WHOLE = ((16, 16, 16), (48, 80, 112), (80, 48, 16), (112, 176, 48), (24, 40, 72), (104, 56, 88), (20, 12, 28))
# A tile of every 8th row has 8 times as many rows between its first and its last.
PACKED_SIZES = (*SIZES, (128, 33, 16), (131, 64, 24), (270, 49, 31), (15, 35, 16))
DESCRIPTOR_SIZES = (
    *WHOLE, (1, 16, 16), (7, 48, 208), (17, 80, 32), (33, 144, 64),
    (32, 32, 1), (48, 16, 7), (16, 96, 17), (64, 32, 211), (48, 272, 304),
)  # fmt: skip
VECTOR_SIZES = (
    (1, 1, 1), (1, 17, 7), (7, 1, 17), (17, 7, 1), (1, 64, 128), (64, 1, 100), (2, 37, 68), (37, 2, 64),
    (16, 100, 33), (100, 16, 48), (3, 131, 259), (131, 5, 256), (8, 8, 64), (1, 40, 1), (13, 15, 128),
)  # fmt: skip


def sizes_of(variant: Variant) -> tuple[tuple[int, int, int], ...]:
    if variant.family == "gemv":
        return VECTOR_SIZES
    if variant.family == "gemm_packed":
        return PACKED_SIZES
    return DESCRIPTOR_SIZES if variant.by_descriptor else SIZES


def takes_problem(variant: Variant, problem: GemmProblem) -> bool:
    """Whether the variant computes such a problem, whatever its size."""
    ocp = not problem.dtype_a.endswith("_fnuz")
    return (
        first_fault(problem) is None
        and (problem.batch == 1 or variant.family == "gemm_tile")
        and not (variant.family == "gemv" and problem.scaling == "block")
        and (ocp or not variant.target.facts.tma)
    )


def takes(variant: Variant, problem: GemmProblem, one: KernelConfig) -> bool:
    """Whether a configuration computes a problem, and in little time."""
    if not takes_problem(variant, problem):
        return False
    if variant.family == "gemv":
        blocks = -(-max(problem.m, problem.n) // one.BLOCK_SIZE_N) * -(-problem.k // one.BLOCK_SIZE_K)
        return min(problem.m, problem.n) <= one.BLOCK_SIZE_M and blocks <= MOST_BLOCKS // 4
    nt_alone = problem.layout_a == ROW and problem.layout_b == COL and problem.scaling != "block"
    if one.ROW_STEP > 1 and not nt_alone:
        return False
    if problem.scaling == "block" and (one.BLOCK_SIZE_N % 3 == 0 or SCALE_BLOCK % one.BLOCK_SIZE_K != 0):
        return False
    if variant.by_descriptor:
        lda = problem.k if problem.layout_a == ROW else problem.m
        ldb = problem.n if problem.layout_b == ROW else problem.k
        rows = ((lda, problem.dtype_a), (ldb, problem.dtype_b), (problem.n, problem.dtype_c))
        if any(length * DTYPES[dtype].size_bytes % CHUNK_BYTES for length, dtype in rows):
            return False
    tiles = rows_of_tiles(problem, one) * -(-problem.n // one.BLOCK_SIZE_N)
    return problem.batch * tiles * -(-problem.k // one.BLOCK_SIZE_K) <= MOST_BLOCKS


def target_of(variant: Variant, problem: GemmProblem) -> Target:
    """The variant's target, or the one that multiplies the problem's kind of fp8."""
    if variant.target == POINTERS and DTYPES[problem.dtype_a].is_fp8 and not problem.dtype_a.endswith("_fnuz"):
        return replace(POINTERS, arch="gfx950")
    return variant.target


Row = dict[str, Any]
FACTORS: dict[str, tuple[Any, ...]] = {
    "variant": tuple(VARIANTS),
    "type": tuple(TYPES),
    "layouts": LAYOUTS,
    "scaling": SCALINGS,
    "activation": ACTIVATIONS,
    "alpha": (1.0, 0.75),
    "beta": (0.0, -1.5),
    "bias": (False, True),
    "batch": (1, 3),
}
Pair = tuple[tuple[str, Any], tuple[str, Any]]


def problem_of(row: Row, size: tuple[int, int, int] = (1, 1, 1)) -> GemmProblem:
    dtype_a, dtype_b, dtype_c, precision = TYPES[row["type"]]
    return GemmProblem(
        *size, dtype_a, dtype_b, dtype_c, *row["layouts"], batch=row["batch"], bias=row["bias"],
        activation=row["activation"], alpha=row["alpha"], beta=row["beta"], scaling=row["scaling"], precision=precision,
    )  # fmt: skip


def is_legal(row: Row) -> bool:
    return takes_problem(VARIANTS[row["variant"]], problem_of(row))


def pairs_of(row: Row) -> set[Pair]:
    return set(itertools.combinations(row.items(), 2))


def legal_pairs() -> set[Pair]:
    """Every pair of values that some legal row has: what a feature forbids, only types and it can tell."""
    plain = {factor: values[0] for factor, values in FACTORS.items()}
    found: set[Pair] = set()
    for (one, its), (other, others) in itertools.combinations(FACTORS.items(), 2):
        for value, second, kind in itertools.product(its, others, TYPES):
            row = {**plain, "type": kind, one: value, other: second}
            if is_legal(row):
                found.add(((one, value), (other, second)))
    return found


def covering(rng: random.Random, wanted: set[Pair], tries: int = 20) -> Iterator[Row]:
    """Legal rows that together have every wanted pair: each is the best of some random ones with a missing pair."""
    left = set(wanted)
    for pair in sorted(wanted, key=repr):
        if pair in left:
            best = max(itertools.islice(rows_with(pair, rng), tries), key=lambda row: len(pairs_of(row) & left))
            left -= pairs_of(best)
            yield best


def rows_with(pair: Pair, rng: random.Random) -> Iterator[Row]:
    """Random legal rows that have the pair, without end."""
    while True:
        row = {factor: rng.choice(values) for factor, values in FACTORS.items()} | dict(pair)
        if is_legal(row):
            yield row


class Sizing:
    """Gives each row a size and a configuration, those that its variant met least before."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._met: dict[Any, int] = {}

    def case(self, row: Row) -> Case:
        variant = VARIANTS[row["variant"]]
        every = [
            (problem, one)
            for size, one in itertools.product(sizes_of(variant), variant.configs)
            if takes(variant, problem := problem_of(row, size), one)
        ]

        def used(pair: tuple[GemmProblem, KernelConfig]) -> tuple[int, int, int]:
            (problem, one), name = pair, row["variant"]
            size = (problem.m, problem.n, problem.k)
            return (self._met.get((name, size, one), 0), self._met.get((name, one), 0), self._met.get((name, size), 0))

        # Some configurations take few rows: one that no row had goes before all others.
        problem, one = min(every, key=lambda pair: (used(pair)[1] > 0, sum(used(pair)), used(pair)))
        size = (problem.m, problem.n, problem.k)
        for key in ((row["variant"], size, one), (row["variant"], one), (row["variant"], size)):
            self._met[key] = self._met.get(key, 0) + 1
        return case_of(self._folder, variant, problem, one)


def case_of(folder: Path, variant: Variant, problem: GemmProblem, one: KernelConfig, **more: Any) -> Case:
    """A case with the variant's script, which holds all its configurations."""
    return Case(script_of(folder, variant, problem), one, problem, **more)


def script_of(folder: Path, variant: Variant, problem: GemmProblem, templates: Path = TEMPLATES) -> str:
    """The path of the variant's script for the problem's class; written once."""
    return _written(folder, variant, problem.as_class(), target_of(variant, problem), templates)


@functools.cache
def _written(folder: Path, variant: Variant, problem: GemmProblem, target: Target, templates: Path) -> str:
    out = folder / target.arch
    out.mkdir(parents=True, exist_ok=True)
    script = codegen.write_script(templates, out, variant.family, problem, variant.configs, target)
    return str(out / script.file)


def broken_templates(tmp_path: Path, name: str, right: str, wrong: str) -> Path:
    """A copy of the templates with one fault."""
    folder = tmp_path / "templates"
    shutil.copytree(TEMPLATES, folder)
    text = (folder / name).read_text(encoding="utf-8")
    assert text.count(right) == 1, f"{name} has {right!r} {text.count(right)} times"
    (folder / name).write_text(text.replace(right, wrong), encoding="utf-8")
    return folder

"""Which sizes share a compiled kernel, and what compiling one costs."""

from __future__ import annotations

from gemm_tuner.core.dtypes import DTYPES
from gemm_tuner.core.records import Target
from gemm_tuner.gemm.config import KernelConfig
from gemm_tuner.gemm.descriptors import loads_by_descriptor, whole_rows
from gemm_tuner.gemm.families.family import family_of
from gemm_tuner.gemm.problem import SCALE_BLOCK, GemmProblem

PACKED_ROW_BYTES = 128  # packed rows start at multiples of it, as the template has them


def specialization(problem: GemmProblem, config: KernelConfig, target: Target) -> str:
    """Names the binary that a size needs of a configuration; equal names share one compile.

    Kernels that load through descriptors take no size as a specialised argument: all sizes share one. For others
    Triton compiles one kernel for integer arguments that are 1, divisible by 16, or neither, and for those of 32 or
    64 bits; on AMD one for tensors of up to 2 GiB and one for larger ones. The flags EVEN_K, WIDE and BY_8 add their
    two cases. The name may split finer than Triton does (a cache hit then), never coarser.
    """
    if loads_by_descriptor(config.family, target):
        return "d"
    if family_of(config.family).packs:
        return packed_specialization(problem, config, target)
    m, n, k, batch = problem.m, problem.n, problem.k, problem.batch

    def divisibility(value: int) -> str:
        return "1" if value == 1 else "d" if value % 16 == 0 else "8" if value % 8 == 0 else "x"

    unspecialised_m = family_of(config.family).takes_any_m and problem.layout_a == "row"
    m_class = "-" if unspecialised_m else divisibility(m)
    numel = batch * m * n
    numel_class = divisibility(numel) + ("l" if numel >= 2**31 else "") if config.SPLIT_K > 1 else "-"
    even = "".join("e" if k % (config.BLOCK_SIZE_K * slices) == 0 else "o" for slices in (1, config.SPLIT_K))
    largest = max((m + 256) * (k + 256), (k + 256) * (n + 256), (m + 256) * (n + 256))
    width = "w" if largest >= 2**31 else "s"
    # Servers' own kernels take the blocks of scales of a row as a stride, too.
    scales = f"s{divisibility(-(-k // SCALE_BLOCK))}" if config.is_of_a_server else ""
    small_side = ("a" if m <= n else "b") if family_of(config.family).by_small_side else ""
    large = "".join(name for name, extent in extents_bytes(problem, config).items() if extent >= 2**31)
    classes = f"m{m_class}n{divisibility(n)}k{divisibility(k)}c{numel_class}{scales}{even}{width}{small_side}"
    return classes + (f"_{large}" if large else "")


def packed_specialization(problem: GemmProblem, config: KernelConfig, target: Target) -> str:
    """``specialization`` of a family that packs: no size is a specialised argument. Which matrices have whole rows says
    what is packed and how C is stored; the flags EVEN_K and WIDE, and large tensors on AMD, have cases of their own."""
    whole = "".join("w" if one else "o" for one in whole_rows(problem))
    if target.facts.tma:
        return whole
    m, n, k = problem.m, problem.n, problem.k
    even = "e" if k % config.BLOCK_SIZE_K == 0 else "o"
    wide = "w" if max((m + 256) * (k + 256), (k + 256) * (n + 256), (m + 256) * (n + 256)) >= 2**31 else "s"
    large = "".join(name for name, extent in extents_bytes(problem, config).items() if extent >= 2**31)
    return f"{whole}{even}{wide}" + (f"_{large}" if large else "")


def extents_bytes(problem: GemmProblem, config: KernelConfig) -> dict[str, int]:
    """Bytes of each tensor of a call, by a letter: a, b, c and p, the partial sums, at most."""
    m, n, k, batch = problem.m, problem.n, problem.k, problem.batch
    size_a, size_b, size_c = (DTYPES[d].size_bytes for d in (problem.dtype_a, problem.dtype_b, problem.dtype_c))
    padded = -(-m // config.BLOCK_SIZE_M) * config.BLOCK_SIZE_M * -(-n // config.BLOCK_SIZE_N) * config.BLOCK_SIZE_N
    sums = padded if family_of(config.family).pads_partial_sums else m * n
    partial = batch * sums * 4 * config.SPLIT_K if config.SPLIT_K > 1 else 0
    packed = sum(packed_bytes(problem, config)) if family_of(config.family).packs else 0
    of_matrices = {"a": batch * m * k * size_a, "b": batch * k * n * size_b, "c": batch * m * n * size_c}
    return {**of_matrices, "p": partial + packed}


def packed_bytes(problem: GemmProblem, config: KernelConfig) -> tuple[int, int]:
    """Bytes of packed A and of packed B, at most; 0 for one that is not packed."""
    whole_a, whole_b, _ = whole_rows(problem)
    of_a = (problem.m, problem.k) if problem.layout_a == "row" else (problem.k, problem.m)
    of_b = (problem.k, problem.n) if problem.layout_b == "row" else (problem.n, problem.k)
    row_a, row_b = (
        -(-columns * DTYPES[dtype].size_bytes // PACKED_ROW_BYTES) * PACKED_ROW_BYTES
        for (_, columns), dtype in ((of_a, problem.dtype_a), (of_b, problem.dtype_b))
    )
    rows_a = -(-of_a[0] // config.ROW_STEP) * config.ROW_STEP
    return (0 if whole_a and config.ROW_STEP == 1 else rows_a * row_a), (0 if whole_b else of_b[0] * row_b)


def compile_cost(config: KernelConfig) -> float:
    """Orders tasks longest first: compile time grows with the accumulators of a thread and the tile."""
    tile = config.BLOCK_SIZE_M * config.BLOCK_SIZE_N
    return tile / (32 * config.num_warps) * config.BLOCK_SIZE_K + tile * config.num_stages / 64


def launch_of(problem: GemmProblem, config: KernelConfig, num_sms: int) -> tuple[str | int, ...]:
    """What a launch depends on beside the code: equal for two configurations of one code whose programs do the same
    work in the same order, with the same descriptors and scratch."""
    rows = rows_of_tiles(problem, config)
    columns = -(-problem.n // config.BLOCK_SIZE_N)
    # Groups of all rows, or of one, are the same whatever is asked; so is any order of a single row or column.
    group = 1 if 1 in (rows, columns) else min(config.GROUP_SIZE_M, rows)
    return (
        *(config.family, config.BLOCK_SIZE_M, config.BLOCK_SIZE_N, config.BLOCK_SIZE_K, config.SPLIT_K),
        *(config.EPILOGUE_SUBTILE, config.ROW_STEP, config.PACK_BLOCK, group),
        programs_of(problem, config, rows * columns, num_sms),
    )


def rows_of_tiles(problem: GemmProblem, config: KernelConfig) -> int:
    """Tiles along M."""
    rows_of_a_step = -(-problem.m // config.ROW_STEP)
    return -(-rows_of_a_step // config.BLOCK_SIZE_M) * config.ROW_STEP


def programs_of(problem: GemmProblem, config: KernelConfig, tiles: int, num_sms: int) -> int:
    """The persistent grid, as the ``calls`` of its template have it; 0 for one program a tile."""
    work = family_of(config.family).work_items(tiles * config.SPLIT_K, -(-problem.k // config.BLOCK_SIZE_K))
    return min(work, num_sms * config.PROGRAMS_PER_SM)

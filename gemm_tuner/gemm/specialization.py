"""Which sizes can share a compiled kernel, and the cost of compiling it."""

from __future__ import annotations

from gemm_tuner.core.dtypes import DTYPES
from gemm_tuner.core.records import Target
from gemm_tuner.gemm.config import KernelConfig
from gemm_tuner.gemm.descriptors import has_equal_slices, loads_by_descriptor, whole_rows
from gemm_tuner.gemm.families.family import family_of
from gemm_tuner.gemm.problem import SCALE_BLOCK, GemmProblem

PACKED_ROW_BYTES = 128  # packed rows start at multiples of it; equal to the constant in the template


def specialization(problem: GemmProblem, config: KernelConfig, target: Target) -> str:
    """A name for the binary that a size needs of a configuration; equal names share one compilation.

    Kernels that load through descriptors have no specialized size arguments, so all sizes share a binary (two, where
    equal slices of K are views). Otherwise Triton distinguishes, for each integer argument, whether it is 1, divisible
    by 16, or neither, and whether it has 32 or 64 bits; on AMD also tensors of up to 2 GiB and larger ones. The flags
    EVEN_K and WIDE have two cases each, the divisors of sizes (M_BY, N_BY, K_BY) four.
    The name may distinguish more than Triton does (which costs a cache hit), but never less.
    """
    if loads_by_descriptor(config.family, target):
        is_other = family_of(config.family).equal_slices_are_views and not has_equal_slices(problem, config.SPLIT_K)
        return "du" if is_other else "d"
    if family_of(config.family).packs:
        return packed_specialization(problem, config, target)
    m, n, k, batch = problem.m, problem.n, problem.k, problem.batch

    def divisibility(value: int) -> str:
        if value == 1 or value % 16 == 0:
            return "1" if value == 1 else "d"
        return f"x{min(8, value & -value)}"

    unspecialised_m = family_of(config.family).takes_any_m and problem.layout_a == "row"
    m_class = "-" if unspecialised_m else divisibility(m)
    numel = batch * m * n
    numel_class = divisibility(numel) + ("l" if numel >= 2**31 else "") if config.SPLIT_K > 1 else "-"
    even = "".join("e" if k % (config.BLOCK_SIZE_K * slices) == 0 else "o" for slices in (1, config.SPLIT_K))
    largest = max((m + 256) * (k + 256), (k + 256) * (n + 256), (m + 256) * (n + 256))
    width = "w" if largest >= 2**31 else "s"
    # Kernels of servers also take the number of scale blocks per row, as a stride.
    scales = f"s{divisibility(-(-k // SCALE_BLOCK))}" if config.is_of_a_server else ""
    small_side = ("a" if m <= n else "b") if family_of(config.family).by_small_side else ""
    large = "".join(name for name, extent in extents_bytes(problem, config).items() if extent >= 2**31)
    classes = f"m{m_class}n{divisibility(n)}k{divisibility(k)}c{numel_class}{scales}{even}{width}{small_side}"
    return classes + (f"_{large}" if large else "")


def packed_specialization(problem: GemmProblem, config: KernelConfig, target: Target) -> str:
    """``specialization`` of a family that packs: no size is a specialized argument. What matters is which matrices have
    aligned rows (what is packed, and how C is stored), the flags EVEN_K and WIDE, and on AMD which tensors are
    large. A kernel that is not Triton's only knows whether it follows another, and of slices of K stores no C."""
    if family_of(config.family).language != "triton":
        return ("w" if whole_rows(problem)[2] or config.SPLIT_K > 1 else "o") + (
            "p" if any(packed(problem, config)) else ""
        )
    whole = "".join("w" if one else "o" for one in whole_rows(problem))
    if target.facts.tma:
        return whole
    m, n, k = problem.m, problem.n, problem.k
    even = "e" if k % config.BLOCK_SIZE_K == 0 else "o"
    wide = "w" if max((m + 256) * (k + 256), (k + 256) * (n + 256), (m + 256) * (n + 256)) >= 2**31 else "s"
    large = "".join(name for name, extent in extents_bytes(problem, config).items() if extent >= 2**31)
    return f"{whole}{even}{wide}" + (f"_{large}" if large else "")


def packed(problem: GemmProblem, config: KernelConfig) -> tuple[bool, bool]:
    """Whether A and whether B is packed, in a family that packs."""
    whole_a, whole_b, _ = whole_rows(problem)
    in_place = family_of(config.family).in_place
    stays_a, stays_b = (in_place and config.SWAP_AB == 0), (in_place and config.SWAP_AB == 1)
    return not (stays_a or (whole_a and config.ROW_STEP == 1)), not (stays_b or whole_b)


def extents_bytes(problem: GemmProblem, config: KernelConfig) -> dict[str, int]:
    """Upper bound of the bytes of each tensor of a call, by letter: a, b, c, and p for the partial sums."""
    m, n, k, batch = problem.m, problem.n, problem.k, problem.batch
    size_a, size_b, size_c = (DTYPES[d].size_bytes for d in (problem.dtype_a, problem.dtype_b, problem.dtype_c))
    padded = -(-m // config.BLOCK_SIZE_M) * config.BLOCK_SIZE_M * -(-n // config.BLOCK_SIZE_N) * config.BLOCK_SIZE_N
    sums = padded if family_of(config.family).pads_partial_sums else m * n
    partial = batch * sums * 4 * config.SPLIT_K if config.SPLIT_K > 1 else 0
    copies = sum(packed_bytes(problem, config)) if family_of(config.family).packs else 0
    of_matrices = {"a": batch * m * k * size_a, "b": batch * k * n * size_b, "c": batch * m * n * size_c}
    return {**of_matrices, "p": partial + copies}


def packed_bytes(problem: GemmProblem, config: KernelConfig) -> tuple[int, int]:
    """Upper bound of the bytes of packed A and of packed B; 0 for an operand that is not packed."""
    packs_a, packs_b = packed(problem, config)
    of_a = (problem.m, problem.k) if problem.layout_a == "row" else (problem.k, problem.m)
    of_b = (problem.k, problem.n) if problem.layout_b == "row" else (problem.n, problem.k)
    row_a, row_b = (
        -(-columns * DTYPES[dtype].size_bytes // PACKED_ROW_BYTES) * PACKED_ROW_BYTES
        for (_, columns), dtype in ((of_a, problem.dtype_a), (of_b, problem.dtype_b))
    )
    rows_a = -(-of_a[0] // config.ROW_STEP) * config.ROW_STEP
    return (rows_a * row_a if packs_a else 0), (of_b[0] * row_b if packs_b else 0)


def compile_cost(config: KernelConfig) -> float:
    """A relative compile time: it grows with the tile and with the accumulators per thread."""
    tile = config.BLOCK_SIZE_M * config.BLOCK_SIZE_N
    return tile / (32 * (config.num_warps or 8)) * config.BLOCK_SIZE_K + tile * config.num_stages / 64


def launch_of(problem: GemmProblem, config: KernelConfig, num_sms: int) -> tuple[str | int, ...]:
    """Everything that a launch depends on besides the machine code. It is equal for two configurations of equal code
    whose programs do the same work in the same order, with the same descriptors and scratch."""
    rows = rows_of_tiles(problem, config)
    columns = -(-problem.n // config.BLOCK_SIZE_N)
    if config.SWAP_AB:
        rows, columns = -(-problem.m // config.BLOCK_SIZE_N), -(-problem.n // config.BLOCK_SIZE_M)
    # A group larger than all rows acts like one of all rows, and with a single row or column the order does not matter.
    group = 1 if 1 in (rows, columns) else min(config.GROUP_SIZE_M, rows)
    if family_of(config.family).language != "triton":  # whose order of tiles is the library's own
        group = config.GROUP_SIZE_M
    return (
        *(config.family, config.BLOCK_SIZE_M, config.BLOCK_SIZE_N, config.BLOCK_SIZE_K, config.SPLIT_K),
        *(config.EPILOGUE_SUBTILE, config.ROW_STEP, config.PACK_BLOCK, group, config.SWAP_AB),
        programs_of(problem, config, rows * columns, num_sms),
    )


def rows_of_tiles(problem: GemmProblem, config: KernelConfig) -> int:
    """Number of tiles along M."""
    rows_of_a_step = -(-problem.m // config.ROW_STEP)
    return -(-rows_of_a_step // config.BLOCK_SIZE_M) * config.ROW_STEP


def programs_of(problem: GemmProblem, config: KernelConfig, tiles: int, num_sms: int) -> int:
    """The size of the persistent grid, computed as in ``calls`` of the template; 0 for one program per tile."""
    work = family_of(config.family).work_items(tiles * config.SPLIT_K, -(-problem.k // config.BLOCK_SIZE_K))
    return min(work, num_sms * config.PROGRAMS_PER_SM)

"""The launch arguments of both GEMMs of a call, by the names in servers' kernels."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from types import SimpleNamespace
from typing import Any

from gemm_tuner.moe import alignment, launchers
from gemm_tuner.moe.launcher import AMD_FIELDS, TMA
from gemm_tuner.moe.own import OWN_FIELDS
from gemm_tuner.moe.problem import MoeProblem

UP, DOWN = "up", "down"
PARTS = (UP, DOWN)
SHAPE_FIELDS = ("BLOCK_SIZE_N", "BLOCK_SIZE_K", "GROUP_SIZE_M", "num_warps", "num_stages")
# Prefix of fields for the second GEMM only: the configuration then has two tiles with the same BLOCK_SIZE_M.
OF_DOWN = "down_"
# SGLang lets the next kernel begin at once where A has no more rows.
EARLY_ROWS = 512


@dataclass(frozen=True, slots=True)
class Extent:
    """The extents of one GEMM: A is [rows_a, depth], w [E, columns, depth], C [rows, columns]; row r of C is computed
    from row r // divisor of A."""

    rows_a: int
    columns: int
    depth: int
    divisor: int


def extent(problem: MoeProblem, part: str) -> Extent:
    if part == UP:
        return Extent(problem.M, problem.gates * problem.N, problem.K, problem.topk)
    return Extent(problem.rows, problem.K, problem.N, 1)


@dataclass(frozen=True, slots=True)
class Sides:
    """Which tensors of a GEMM have their rows where the alignment places them, with padding."""

    a_sorted: bool = False
    c_sorted: bool = False


@dataclass(frozen=True)
class Tensors:
    """The tensors of one GEMM; None for those that the problem does not have. wide: C is fp32, for the interpreter."""

    a: Any = None
    w: Any = None
    c: Any = None
    a_scale: Any = None
    w_scale: Any = None
    zero: Any = None
    bias: Any = None
    router: Any = None
    row_ids: Any = None
    experts: Any = None
    total: Any = None
    wide: bool = False


def part_config(config: dict[str, Any], part: str) -> dict[str, Any]:
    """The configuration of one GEMM of a call."""
    given = {key: value for key, value in config.items() if value is not None}
    shared = {key: value for key, value in given.items() if not key.startswith(OF_DOWN)}
    own = {key.removeprefix(OF_DOWN): value for key, value in given.items() if key.startswith(OF_DOWN)}
    return {**shared, **own} if part == DOWN else shared


def sides(config: dict[str, Any], part: str) -> Sides:
    """SGLang's second GEMM by TMA reads rows as they are placed, and so the first one writes them."""
    by_tma = bool(part_config(config, DOWN).get(TMA))
    return Sides(a_sorted=by_tma and part == DOWN, c_sorted=by_tma and part == UP)


def placed_rows(problem: MoeProblem, block_m: int) -> int:
    """The rows of sorted tensors: as many as SGLang allocates."""
    return alignment.room(problem.rows, problem.E + 1, block_m)


def descriptors(problem: MoeProblem, config: dict[str, Any], part: str) -> dict[str, Any]:
    """The extents and tiles of A's and w's tensor descriptors, None for those that a GEMM does not have: SGLang's first
    GEMM gathers rows of A by pointers."""
    own, of = part_config(config, part), extent(problem, part)
    block_m, block_n, block_k = (own[f"BLOCK_SIZE_{axis}"] for axis in "MNK")
    a = [placed_rows(problem, block_m), of.depth], [block_m, block_k]
    w = [problem.E, of.columns, of.depth], [1, block_n, block_k]
    return {"a_desc": a if sides(config, part).a_sorted else None, "b_desc": w if own.get(TMA) else None}


def symbol(problem: MoeProblem, config: dict[str, Any], part: str) -> str:
    """The symbol of a GEMM's kernel; configurations with the same launch share it."""
    own, launcher = part_config(config, part), launchers.of_config(problem, config)
    block_k = int(launcher.launched_k(problem, own["BLOCK_SIZE_K"]))
    tile = f"{own['BLOCK_SIZE_M']}x{own['BLOCK_SIZE_N']}x{block_k}"
    more = "".join(f"_{name}{own[name]}" for name in (*AMD_FIELDS, *OWN_FIELDS) if name in own)
    more += "_tma" * bool(own.get(TMA)) + "_sorted" * sides(config, part).c_sorted
    rest = f"g{own['GROUP_SIZE_M']}_w{own['num_warps']}_s{own['num_stages']}"
    return f"{launcher.name}_moe_{part}_{tile}_{rest}{more}"


def scale_strides(problem: MoeProblem, part: str) -> dict[str, int]:
    """The strides of A's scales by row and column, and of w's scales by expert, column of K, and row."""
    found = dict.fromkeys(("asm", "ask", "bse", "bsk", "bsn"), 0)
    of = extent(problem, part)
    if problem.scaling == "block":
        rows, columns = problem.block_shape
        groups = -(-of.depth // columns)
        found |= {"asm": groups, "ask": 1, "bse": -(-of.columns // rows) * groups, "bsk": 1, "bsn": groups}
    elif problem.grouped:
        groups = of.depth // problem.block_shape[1]
        found |= {"bse": of.columns * groups, "bsk": 1, "bsn": groups}
    elif problem.scaling == "channel":
        found |= {"bse": of.columns, "bsn": 1}
        if problem.dtype == "fp8_w8a8":
            found |= {"asm": 1, "ask": 1, "bsk": 1}
    elif problem.scaling == "tensor" and problem.server == "vllm":
        found["bse"] = 1
    return found


def values(problem: MoeProblem, config: dict[str, Any], part: str, tensors: Tensors, arch: str) -> dict[str, Any]:
    """The values of all arguments of all known versions of servers' kernels, by name; ``compute_type`` is a type's
    name."""
    own, of, server = part_config(config, part), extent(problem, part), launchers.of_problem(problem)
    block_m, block_n = own["BLOCK_SIZE_M"], own["BLOCK_SIZE_N"]
    block_k = int(server.launched_k(problem, own["BLOCK_SIZE_K"]))
    group_n, group_k = problem.block_shape
    swaps = bool(server.swaps(problem, arch, SimpleNamespace(**own)))
    strides = {f"stride_{name}": stride for name, stride in scale_strides(problem, part).items()}
    # The instructions are there and wait for nothing: served, another kernel runs between the GEMMs, which would
    # overlap here if they were launched to.
    waits = server.waits_for_earlier_kernels(arch) and not tensors.wide
    zeros = (strides["stride_bse"] // problem.packed, 1, strides["stride_bsn"]) if problem.zero_points else (0, 0, 0)
    row = of.depth // problem.packed  # bytes of 4-bit integers: even_Ks is about them, block_k_diviable is not
    bias_strides = (of.columns, 1) if problem.bias else (0, 0)
    return {
        "a_ptr": tensors.a, "b_ptr": tensors.w, "c_ptr": tensors.c,
        "b_bias_ptr": tensors.bias, "bias_ptr": tensors.bias,
        "a_scale_ptr": tensors.a_scale, "b_scale_ptr": tensors.w_scale, "topk_weights_ptr": tensors.router,
        "sorted_token_ids_ptr": tensors.row_ids, "expert_ids_ptr": tensors.experts,
        "num_tokens_post_padded_ptr": tensors.total, "add_mask_ptr": None,
        "N": of.columns, "K": of.depth, "EM": server.ids_read(problem, block_m), "num_valid_tokens": problem.rows,
        "stride_am": of.depth, "stride_ak": 1,
        "stride_be": of.columns * row, "stride_bk": 1, "stride_bn": row,
        "b_zp_ptr": tensors.zero, "has_zp": problem.zero_points, "group_size": group_k,
        "stride_bze": zeros[0], "stride_bzk": zeros[1], "stride_bzn": zeros[2],
        "use_int4_w4a16": problem.dtype == "int4_w4a16", "block_k_diviable": of.depth % block_k == 0,
        "stride_cm": of.columns, "stride_cn": 1, **strides, **descriptors(problem, config, part),
        "stride_bbe": bias_strides[0], "stride_bbn": bias_strides[1],
        "stride_bias_e": bias_strides[0], "stride_bias_n": bias_strides[1],
        "group_n": group_n, "group_k": group_k, "naive_block_assignment": not server.sorts(problem),
        "BLOCK_SIZE_M": block_m, "BLOCK_SIZE_N": block_n, "BLOCK_SIZE_K": block_k,
        "GROUP_SIZE_M": own["GROUP_SIZE_M"], "SPLIT_K": 1,
        "MUL_ROUTED_WEIGHT": part == DOWN, "top_k": of.divisor, "compute_type": "fp32" if tensors.wide else problem.out,
        "use_fp8_w8a8": problem.dtype == "fp8_w8a8", "use_int8_w8a8": False,
        "use_int8_w8a16": problem.dtype == "int8_w8a16",
        "per_channel_quant": problem.scaling == "channel" and problem.dtype == "fp8_w8a8",
        "HAS_BIAS": problem.bias, "SWAP_AB": swaps, "swap_ab": swaps, "USE_TD": False,
        "even_Ks": row % block_k == 0, "c_sorted": sides(config, part).c_sorted,
        "FUSE_ADD_TO_OUTPUT": False, "MASK_OUTPUT": False,
        "FUSE_SUM_ALL_REDUCE": False, "ROUTER_TOPK": problem.topk, "FUSE_SWIGLU": False,
        "USE_GDC": waits, "GDC_EARLY": waits and of.rows_a <= EARLY_ROWS,
        "A_OUTPUT_SLICES": 1, "A_OUTPUT_SLICE_WIDTH": 0, "A_OUTPUT_SLICE_K": 0,
    }  # fmt: skip


def grid(problem: MoeProblem, config: dict[str, Any], part: str, num_sms: int) -> tuple[int]:
    own, launcher = part_config(config, part), launchers.of_config(problem, config)
    blocks = math.ceil(launcher.ids_read(problem, own["BLOCK_SIZE_M"]) / own["BLOCK_SIZE_M"])
    tiles = blocks * math.ceil(extent(problem, part).columns / own["BLOCK_SIZE_N"])
    return (min(tiles, own.get("PROGRAMS_PER_SM", 0) * num_sms or tiles),)


@lru_cache(maxsize=4096)
def specialization(problem: MoeProblem, block_m: int) -> str:
    """A name for what Triton specializes in addition to the configuration: classes of integers, and constants."""
    server = launchers.of_problem(problem)
    types = (problem.dtype, problem.fp8, problem.out, problem.scaling, problem.block_shape, problem.bias, problem.topk,
             problem.zero_points, problem.global_E > 0,
             (problem.N, problem.K, problem.gates) if problem.grouped else "")  # fmt: skip
    classes = [_class_of(one) for one in (server.ids_read(problem, block_m), problem.rows)]
    a_bytes = 1 if problem.dtype == "fp8_w8a8" else 2
    for part in PARTS:
        of = extent(problem, part)
        strides = (of.columns * of.depth, *scale_strides(problem, part).values())
        classes += [_class_of(one) for one in (of.columns, of.depth, *strides)]
        weights = int(problem.E * of.columns * of.depth * problem.weight_bytes)
        sizes = of.rows_a * of.depth * a_bytes, weights, problem.rows * of.columns * 2
        classes += ["wide" if size >= 2**31 else "" for size in sizes]
        if server.waits_for_earlier_kernels("sm_90"):
            classes.append(str(of.rows_a <= EARLY_ROWS))
        classes += [str(of.depth % size == 0) for size in (32, 64, 128, 256)]
    return " ".join([*map(str, types), str(server.sorts(problem)), *classes])


def _class_of(value: int) -> str:
    return "1" if value == 1 else f"{'d' if value % 16 == 0 else 'x'}{'l' if value >= 2**31 else ''}"


def options(config: dict[str, Any], part: str) -> dict[str, Any]:
    """The Triton options of a launch."""
    own = part_config(config, part)
    return {name: own[name] for name in ("num_warps", "num_stages", *AMD_FIELDS) if name in own}

"""The checks find every planted fault of a template, and kernels touch nothing beyond the ends of their tensors.

``make test`` plants every second fault and takes two of the steps; ``make test-all`` all of them.
"""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from case_runner import Case, Result, interpret, status_of
from designs import COL, POINTERS, ROW, VARIANTS, Variant, broken_templates, config, script_of

from gemm_tuner.gemm.problem import GemmProblem

ODD = GemmProblem(33, 19, 71, "bf16", "bf16", "bf16", bias=True, beta=0.5)
WHOLE = replace(ODD, m=48, n=208, layout_a=COL)
TENSORS = replace(ODD, dtype_a="int8", dtype_b="int8", scaling="row_col", bias=False)
BLOCKS = replace(ODD, n=290, k=300, dtype_a="fp8_e4m3", dtype_b="fp8_e4m3", scaling="block")
BATCH = replace(ODD, batch=3)
THIRDS, HALVES = "gemm_persistent, descriptors", "gemm_split_k, descriptors"
SPLIT, STREAM, TILE, VECTOR = "gemm_split_k, pointers", "gemm_stream_k, pointers", "gemm_tile", "gemv"
FLAT = replace(ODD, n=7)
MACROS = "_macros.j2"

# variant, number of the configuration, problem; template, what is right, what is wrong
FAULTS = {
    "last term of K masked away": (TILE, 3, ODD, MACROS,
        "offs_k[None, :] < k_left", "offs_k[None, :] < k_left - 1"),
    "last block of K left out": (TILE, 3, ODD, "gemm_tile.py.j2",
        "tl.cdiv(K, BLOCK_SIZE_K * SPLIT_K)", "K // (BLOCK_SIZE_K * SPLIT_K)"),
    "last row not stored": (TILE, 3, ODD, "gemm_tile.py.j2",
        "(rows < M)", "(rows < M - 1)"),
    "last column not stored": (TILE, 0, ODD, MACROS,
        "(part_columns < N)", "(part_columns < N - 1)"),
    "last slice not added": (TILE, 3, ODD, MACROS,
        "tl.static_range(SPLIT_K)", "tl.static_range(SPLIT_K - 1)"),
    "a slice not loaded with the others": (THIRDS, 8, replace(WHOLE, m=16), "_slices.j2",
        "slices < SPLIT_K", "slices < 4"),
    "end of the reduction not stored": (TILE, 3, ODD, MACROS,
        "inside = offsets < numel", "inside = offsets < numel - 1"),
    "bias of the wrong column in a reduction": (TILE, 3, ODD, MACROS,
        "rows, offsets % N, M, N", "rows, (offsets + 1) % N, M, N"),
    "row scale of the wrong row in a reduction": (TILE, 3, TENSORS, MACROS,
        "rows = offsets // N", "rows = (offsets + 1) // N"),
    "group of tiles counted wrongly": (TILE, 1, replace(ODD, m=77), MACROS,
        "min(num_pid_m - first_pid_m, GROUP_SIZE_M)", "GROUP_SIZE_M"),
    "chiplets that share a tile": (TILE, 2, replace(ODD, m=201), MACROS,
        "% NUM_XCDS) + {{ pid }} // NUM_XCDS", "% NUM_XCDS)"),
    "batch that reads one A": (TILE, 0, BATCH, "gemm_tile.py.j2",
        "a_ptr += matrix * M * K", "a_ptr += matrix * 0"),
    "scale of the next group of K": (TILE, 5, BLOCKS, MACROS,
        "group = tl.minimum({{ block }} * BLOCK_SIZE_K // {{ scale_block }}, k_groups - 1)",
        "group = ({{ block }} * BLOCK_SIZE_K // {{ scale_block }} + 1) % k_groups"),
    "scale of the first columns for all": (TILE, 5, BLOCKS, MACROS,
        "offs_n // {{ scale_block }} * k_groups + group)[None", "offs_n * 0 + group)[None"),
    "scale of A left out": (TILE, 0, TENSORS, MACROS,
        "value *= tl.load(a_scale_ptr + rows, mask=rows < M, other=0.0)", "value *= 1.0"),
    "beta left out": (TILE, 0, ODD, MACROS,
        "value += beta * c_in", "value += c_in"),
    "tiles left to nobody": (THIRDS, 1, WHOLE, "gemm_persistent.py.j2",
        "num_pid_n * SPLIT_K, tl.num_programs(0)", "num_pid_n * SPLIT_K, tl.num_programs(0) + 1"),
    "last third from the wrong columns": (THIRDS, 4, WHOLE, MACROS,
        '"k", column ~ " + MAIN_N"', '"k", column'),
    "last third in the wrong place": (THIRDS, 5, WHOLE, MACROS,
        '"rest", "2 * THIRD", "THIRD")', '"rest", "THIRD", "THIRD")'),
    "halves exchanged": (THIRDS, 1, WHOLE, MACROS,
        '"right", "BLOCK_SIZE_N // 2", "BLOCK_SIZE_N // 2", 8)',
        '"left", "BLOCK_SIZE_N // 2", "BLOCK_SIZE_N // 2", 8)'),
    "a quarter of the wrong half": (THIRDS, 2, WHOLE, MACROS,
        "tl.reshape(right, (BLOCK_SIZE_M, 2, BLOCK_SIZE_N // 4))",
        "tl.reshape(left, (BLOCK_SIZE_M, 2, BLOCK_SIZE_N // 4))"),
    "stream-K: both parts of a program in one slot": (STREAM, 0, ODD, "gemm_stream_k.py.j2",
        "tl.where(shared == first_tile, 0, 1)", "0"),
    "stream-K: first contributor left out": (STREAM, 0, ODD, "gemm_stream_k.py.j2",
        "first = shared * k_blocks // share", "first = shared * k_blocks // share + 1"),
    "stream-K: last contributor left out": (STREAM, 1, ODD, "gemm_stream_k.py.j2",
        "last = ((shared + 1) * k_blocks - 1) // share", "last = (shared + 1) * k_blocks // share - 1"),
    "stream-K: whole tiles from the wrong place": (STREAM, 0, replace(ODD, m=77), "gemm_stream_k.py.j2",
        "shared_tiles + program, tiles", "shared_tiles + program + 1, tiles"),
    "split-K: all slices in one slot": (SPLIT, 1, ODD, "gemm_split_k.py.j2",
        "tile * SPLIT_K + slice_k", "tile * SPLIT_K"),
    "split-K: slices overlap": (SPLIT, 0, ODD, "gemm_split_k.py.j2",
        "first_block = slice_k * blocks", "first_block = slice_k * (blocks - 1)"),
    "split-K: last slice not added": (HALVES, 1, replace(WHOLE, k=203), "gemm_split_k.py.j2",
        '"0", "SPLIT_K", ', '"0", "SPLIT_K - 1", '),
    "split-K: sums of the wrong tile": (SPLIT, 4, ODD, "gemm_split_k.py.j2",
        '"tile * SPLIT_K + i"', '"(tile + 1) % num_tiles * SPLIT_K + i"'),
    "vectors: rows confused": (VECTOR, 4, FLAT, "gemv.py.j2",
        "min(%d, rows - 1) * next_row", "min(%d, rows - 2) * next_row"),
    "vectors: last slice not added": (VECTOR, 7, FLAT, "gemv.py.j2",
        "for _ in tl.static_range(SPLIT_K)", "for _ in tl.static_range(SPLIT_K - 1)"),
    "vectors: bias along the wrong side": (VECTOR, 4, FLAT, "gemv.py.j2",
        "offs_n, row, columns, rows)", "row, offs_n, columns, rows)"),
    "vectors: end of K masked away": (VECTOR, 6, FLAT, "gemv.py.j2",
        "inside_k = offs_k < K -", "inside_k = offs_k < K - 1 -"),
}  # fmt: skip
UNWRITTEN = {"last row not stored": (32, None), "last column not stored": (None, 18)}


# Every second of them in turns, and those of which more is known.
SAMPLE = {fault: FAULTS[fault] for number, fault in enumerate(FAULTS) if number % 2 or fault in UNWRITTEN}


def checked(folder: Path, faults: dict[str, Any]) -> dict[str, Result]:
    cases = []
    for number, (name, which, problem, *fault) in enumerate(faults.values()):
        (own := folder / str(number)).mkdir()
        variant = VARIANTS[name]
        script = script_of(own, variant, problem, broken_templates(own, *fault))
        cases.append(Case(script, variant.configs[which], problem))
    return dict(zip(faults, interpret(cases), strict=True))


IN_PARTS = pytest.mark.parametrize(
    "faults", [pytest.param(SAMPLE, id="part"), pytest.param(FAULTS, id="all", marks=pytest.mark.grid)]
)


@IN_PARTS
def test_the_check_finds_every_planted_fault(tmp_path: Path, faults: dict[str, Any]) -> None:
    found = checked(tmp_path, faults)
    assert [fault for fault, result in found.items() if result.ok] == []
    for result in found.values():
        row, column = result.worst_element
        assert result.message.startswith(f"C[{row}, {column}] is ")
    for fault, (row, column) in UNWRITTEN.items():
        at = found[fault].worst_element
        assert at[0] == row or at[1] == column
        assert f"C[{at[0]}, {at[1]}] is nan" in found[fault].message


@IN_PARTS
def test_without_a_fault_all_these_are_right(tmp_path: Path, faults: dict[str, Any]) -> None:
    wanted = {(name, which, problem) for name, which, problem, *_ in faults.values()}
    cases = [
        Case(script_of(tmp_path, VARIANTS[name], problem), VARIANTS[name].configs[which], problem)
        for name, which, problem in wanted
    ]
    assert [result.message for result in interpret(cases) if not result.ok] == []


LARGE = config("gemm_tile", 128, 256, 128)
LONG = config("gemv", 16, 1024, 128)
STEPS = {
    "rows of A": ("gemm_tile", LARGE, MACROS,
        "tl.arange(0, BLOCK_SIZE_M)) % {{ there[0] }}", "tl.arange(0, BLOCK_SIZE_M))"),
    "columns of B": ("gemm_tile", LARGE, MACROS,
        "tl.arange(0, BLOCK_SIZE_N)) % {{ there[1] }}", "tl.arange(0, BLOCK_SIZE_N))"),
    "end of K in B": ("gemm_tile", LARGE, MACROS,
        "mask=offs_k[:, None] < k_left, other=0.0, ", ""),
    "C": ("gemm_tile", LARGE, MACROS,
        "part.to(c_ptr.dtype.element_ty), mask=inside)", "part.to(c_ptr.dtype.element_ty))"),
    "C_in": ("gemm_tile", LARGE, MACROS,
        "tl.load(c_in_ptr + part_rows * ldc + part_columns, mask=inside, other=0.0)",
        "tl.load(c_in_ptr + part_rows * ldc + part_columns)"),
    "columns of w": ("gemv", LONG, "gemv.py.j2",
        "wrapped = offs_n % columns", "wrapped = offs_n"),
    "C of vectors": ("gemv", LONG, "gemv.py.j2",
        "value.to(c_ptr.dtype.element_ty), mask=inside)", "value.to(c_ptr.dtype.element_ty))"),
}  # fmt: skip


@pytest.mark.parametrize(
    "what", [pytest.param(what, marks=[] if what in ("C", "columns of w") else [pytest.mark.grid]) for what in STEPS]
)
def test_a_step_outside_a_matrix_kills_the_process(tmp_path: Path, what: str) -> None:
    """So the other tests show that the kernels touch nothing beyond the ends of their tensors."""
    family, one, *fault = STEPS[what]
    variant = Variant(family, POINTERS, (one,))
    problem = GemmProblem(33, 19 if family == "gemm_tile" else 7, 39, "fp16", "fp16", "fp16", ROW, ROW, beta=0.5)
    script = script_of(tmp_path, variant, problem, broken_templates(tmp_path, *fault))
    right = Case(script_of(tmp_path / "right", variant, problem), one, problem)
    assert status_of(Case(script, one, problem)) == -signal.SIGSEGV
    assert status_of(right) == 0

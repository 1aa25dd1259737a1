"""The family gemm_cute_packed: what its calls launch for rows that do not start at multiples of 16 bytes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cute_tiles import OF_ODD_ROWS
from samples import config, problem
from test_cute_family import FP8, NEEDS_DSL, TARGET, compiled, launches, script_of

from gemm_tuner.core.records import Status
from gemm_tuner.gemm.config import KernelConfig
from gemm_tuner.gemm.config_keys import config_of
from gemm_tuner.gemm.problem import GemmProblem, Layout
from gemm_tuner.gemm.workload import WORKLOAD
from gemm_tuner.languages.cute.source import Source


def packed(**changes: int) -> KernelConfig:
    given = {"family": "gemm_cute_packed", "num_warps": 0, "num_stages": 0, "PACK_BLOCK": 1024, **changes}
    return config(**given)  # type: ignore[arg-type]


def operands_of(size: GemmProblem) -> Any:
    (operands,) = WORKLOAD.operands(size, 0, "randn", 0, "cpu")
    return operands


def pack(launch: Any) -> None:
    """What ``pack_operands`` does, for A and B: rows without gaps are copied to rows of multiples of 128 bytes."""
    import torch

    a, packed_a, a_rows, a_columns, a_tiles, b, packed_b, b_rows, b_columns, *_ = launch[3]
    for one, to, rows, columns, packs in (
        (a, packed_a, a_rows, a_columns, a_tiles > 0),
        (b, packed_b, b_rows, b_columns, launch[2][0] > a_tiles),
    ):
        if packs:
            ld = -(-columns // 64) * 64
            to.as_strided((rows, columns), (ld, 1)).copy_(torch.as_strided(one, (rows, columns), (columns, 1)))


@pytest.mark.parametrize("swap", [0, 1])
@pytest.mark.parametrize("layouts", [(a, b) for a in Layout for b in Layout])
def test_the_product_reads_what_was_packed(layouts: tuple[Layout, Layout], swap: int, tmp_path: Path) -> None:
    import torch

    size = replace(problem(45, 27, 35), layout_a=layouts[0], layout_b=layouts[1])
    first, multiply = launches(size, packed(SWAP_AB=swap), tmp_path)
    assert first[0].startswith("pack_operands")
    pack(first)
    a, b, c, *_ = multiply[3]
    left, right = operands_of(size).logical(size)
    expected = left.float() @ right.float()
    assert torch.allclose(a.float() @ b.float().t(), expected.t() if swap else expected)
    assert all(one.data_ptr() % 16 == 0 and max(one.stride()) % 8 == 0 for one in (a, b))
    assert multiply[1].values["any_rows"] is True and c.dtype == torch.bfloat16
    assert (c.shape, c.stride()) == (((27, 45), (1, 27)) if swap else ((45, 27), (27, 1)))


@pytest.mark.parametrize("swap", [0, 1])
def test_with_c_in_odd_rows_of_c_are_stored_from_sums(swap: int, tmp_path: Path) -> None:
    import torch

    size = replace(problem(45, 27, 35), beta=1.0)
    first, multiply, last = launches(size, packed(SWAP_AB=swap), tmp_path)
    pack(first)
    a, b, sums, *_ = multiply[3]
    left, right = operands_of(size).logical(size)
    expected = left.float() @ right.float()
    assert sums.dtype == torch.float32 and sums.shape == ((1, 27, 45) if swap else (1, 45, 27))
    sums.copy_(a.float() @ b.float().transpose(1, 2))
    assert last[0] == "add_slices_SK1" and torch.allclose(last[3][0].as_strided((45, 27), (28, 1)), expected)


def test_only_odd_rows_of_c_are_stored_without_tma(tmp_path: Path) -> None:
    size = problem(45, 24, 35)
    first, multiply = launches(size, packed(), tmp_path)
    assert first[0].startswith("pack_operands") and multiply[3][2].shape == (45, 24)
    assert multiply[1].values["any_rows"] is False
    # Nothing is copied where only rows of C are odd; the product is then the only launch, and follows none.
    (alone,) = launches(replace(problem(45, 27, 32), layout_b=Layout.COL), packed(), tmp_path)
    assert alone[1].values["any_rows"] is True
    assert alone[1].values["follows"] is False and multiply[1].values["follows"] is True


def test_slices_of_k_are_shared_out_by_the_kernel_whatever_k_is(tmp_path: Path) -> None:
    for k in (256, 259):
        _, multiply, last = launches(problem(40, 27, k), packed(SPLIT_K=2), tmp_path)
        a, b, sums, *_ = multiply[3]
        assert (a.shape, b.shape, sums.shape) == ((1, 40, k), (1, 27, k), (2, 40, 27))
        assert multiply[1].builder == "build_unequal" and last[0] == "add_slices_SK2"


def test_a_configuration_is_checked_at_another_size_with_the_kernel_that_was_compiled(tmp_path: Path) -> None:
    for n, k in ((264, 1001), (257, 1001), (257, 1008)):
        for one in (packed(), packed(SPLIT_K=3), packed(SWAP_AB=1)):
            size = replace(problem(200, n, k), layout_b=Layout.COL)
            _, other = WORKLOAD.check_problems(size, one.to_dict(), descriptors=False, interpreted=False)
            assert WORKLOAD.specialization(other, one, TARGET) == WORKLOAD.specialization(size, one, TARGET)
            sources = []
            for asked in (size, other):
                script = script_of(asked, tmp_path, one)
                extents = (asked.m, asked.n, asked.k, asked.batch)
                sources.append(Source.of(script.kernel_of(script.CONFIGS[one.name], extents)).entry)
            assert sources[0] == sources[1]


def test_sizes_share_a_compilation_only_where_they_share_a_kernel(tmp_path: Path) -> None:
    """What is packed, and whether C is stored from sums, depends on the size."""
    entries: dict[tuple[str, str], set[str]] = {}
    for n, k in ((264, 1001), (257, 1001), (257, 1008), (264, 1008), (272, 1003)):
        size = replace(problem(200, n, k), layout_b=Layout.COL)
        for one in (packed(), packed(SPLIT_K=3)):
            script = script_of(size, tmp_path, one)
            kernel = script.kernel_of(script.CONFIGS[one.name], (size.m, size.n, size.k, size.batch))
            of = one.name, WORKLOAD.specialization(size, one, TARGET)
            entries.setdefault(of, set()).add(Source.of(kernel).entry)
    assert len(entries) > 4 and {len(some) for some in entries.values()} == {1}


def test_a_row_of_the_family_is_read_back() -> None:
    one = packed(CLUSTER_M=2, PINGPONG=1, PROGRAMS_PER_SM=1)
    assert config_of({"family": one.family, **one.options()}, "a row") == one


@NEEDS_DSL
@pytest.mark.parametrize("keys", [{}, {**FP8, "scaling": "row_col"}, {"bias": True, "activation": "gelu", "beta": 0.5}])
def test_all_kernels_of_a_call_are_compiled(keys: dict[str, Any], tmp_path: Path) -> None:
    odd, whole = (replace(problem(256, n, 515), **keys) for n in (129, 128))
    wanted = [(odd, packed()), (odd, packed(SPLIT_K=3)), (whole, packed())]
    results, _ = compiled(wanted, tmp_path)
    assert [one.status for one in results] == [Status.OK] * 3, [one.message for one in results]
    of_odd = 3 if odd.reads_c else 2  # with C_in, odd rows of C are stored from sums
    assert [len(one.entries) for one in results] == [of_odd, 3, 2] and all(one.spills == 0 for one in results)


@NEEDS_DSL
@pytest.mark.parametrize("keys", [{}, {"dtype_c": "fp32"}, {"bias": True, "activation": "silu"}])
def test_every_tile_stores_rows_that_start_anywhere(keys: dict[str, Any], tmp_path: Path) -> None:
    size = replace(problem(256, 515, 2048), layout_b=Layout.COL, **keys)
    tiles = (
        dict(zip(("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K"), tile, strict=True)) | more
        for tile, more in OF_ODD_ROWS
    )
    results, _ = compiled([(size, packed(**one)) for one in tiles], tmp_path)
    assert {(one.status, one.message) for one in results} == {(Status.OK, "")}
    assert [len(one.entries) for one in results] == [1] * len(OF_ODD_ROWS) and all(one.spills == 0 for one in results)
    assert all(0 < one.shared_bytes <= 232448 for one in results)  # of an SM of sm_90, for a thread block

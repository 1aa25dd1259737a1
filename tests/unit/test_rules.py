"""Every rule cuts what it says and keeps the rest; no size is left with nothing."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import AMD, ARCHS, RULES, columns, config, device, problem, shipped

from gemm_tuner import prune
from gemm_tuner.records import GemmProblem
from gemm_tuner.rule import Kind, Rule
from gemm_tuner.space import AXES

BY_NAME = {rule.name: rule for rule in prune.load_rules(RULES)}
LARGEST = {"SPLIT_K": 32}

# benchmarks/public_sizes.yaml: decode to prefill of Llama-3, DeepSeek-V3 and Qwen, squares, awkward ones.
PUBLIC_SIZES = (
    (16, 16, 16), (1, 4096, 4096), (16, 4096, 4096), (32, 8192, 8192), (64, 8192, 28672), (128, 4096, 14336),
    (256, 7168, 2048), (512, 512, 512), (1000, 1000, 1000), (1024, 1024, 1024), (2048, 2048, 2048),
    (4096, 4096, 4096), (4096, 2304, 7168), (4864, 4096, 8192), (4096, 14336, 4096), (8192, 8192, 128),
    (8192, 8192, 8192), (5000, 5000, 5000), (64, 64, 65536), (17, 5120, 5120),
)  # fmt: skip


class Case(NamedTuple):
    """On ``arch``, for ``size`` of ``dtype``: changes with which a configuration is kept, and with which it is cut."""

    rule: str
    size: tuple[int, int, int]
    kept: dict[str, int]
    cut: dict[str, int]
    arch: str = "sm_90"
    dtype: str = "bf16"


CASES = (
    Case("operands_fit_memory", (200_000, 200_000, 16), {"SPLIT_K": 1}, {"SPLIT_K": 2}),
    Case("indices_fit_32_bits", (2**31 - 129, 1, 1), {"BLOCK_SIZE_M": 128}, {"BLOCK_SIZE_M": 256}),
    Case("indices_fit_32_bits", (1, 2**31 - 129, 1), {"BLOCK_SIZE_N": 128}, {"BLOCK_SIZE_N": 256}),
    Case("indices_fit_32_bits", (1, 1, 2**31 - 129), {"SPLIT_K": 2}, {"SPLIT_K": 4}),
    Case("indices_fit_32_bits", (2**20, 2**20, 1), {"BLOCK_SIZE_M": 32, "BLOCK_SIZE_N": 32},
         {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 16}),
    Case("split_k_fits_grid", (16, 16, 2**30), {"SPLIT_K": 65535}, {"SPLIT_K": 65536}),
    Case("block_holds_dot", (64, 64, 64), {"BLOCK_SIZE_M": 16}, {"BLOCK_SIZE_M": 8}),
    Case("block_holds_dot", (64, 64, 64), {"BLOCK_SIZE_N": 16}, {"BLOCK_SIZE_N": 8}),
    Case("block_holds_dot", (64, 64, 64), {"BLOCK_SIZE_K": 16}, {"BLOCK_SIZE_K": 8}),
    Case("block_holds_mfma", (64, 64, 64), {"BLOCK_SIZE_M": 16}, {"BLOCK_SIZE_M": 16, "matrix_instr_nonkdim": 32},
         "gfx942"),
    Case("block_holds_mfma", (64, 64, 64), {"BLOCK_SIZE_N": 32, "matrix_instr_nonkdim": 32},
         {"BLOCK_SIZE_N": 16, "matrix_instr_nonkdim": 32}, "gfx942"),
    Case("threads_fit_block", (512, 512, 512), {"num_warps": 32}, {"num_warps": 64}),
    Case("threads_fit_block", (512, 512, 512), {"num_warps": 16}, {"num_warps": 32}, "gfx942"),
    # 128 x 256 x 64 in bf16 is 48 KiB a stage; Hopper has 227 KiB.
    Case("shared_memory_fits", (4096, 4096, 4096), {"BLOCK_SIZE_N": 256, "num_stages": 4},
         {"BLOCK_SIZE_N": 256, "num_stages": 5}),
    Case("shared_memory_fits", (4096, 4096, 4096), {"BLOCK_SIZE_N": 256, "num_stages": 5, "num_warps": 2},
         {"BLOCK_SIZE_N": 256, "num_stages": 6, "num_warps": 2}),
    Case("shared_memory_fits", (4096, 4096, 4096), {"BLOCK_SIZE_N": 256, "num_stages": 4},
         {"BLOCK_SIZE_N": 256, "num_stages": 5}, "sm_80"),
    Case("shared_memory_fits", (4096, 4096, 4096), {"BLOCK_SIZE_N": 256, "num_stages": 3},
         {"BLOCK_SIZE_N": 256, "num_stages": 4}, "sm_90", "fp32"),
    Case("lds_fits", (4096, 4096, 4096), {"BLOCK_SIZE_M": 256, "BLOCK_SIZE_K": 128, "num_stages": 1},
         {"BLOCK_SIZE_M": 256, "BLOCK_SIZE_K": 128, "num_stages": 2}, "gfx942"),
    Case("lds_fits", (4096, 4096, 4096), {"BLOCK_SIZE_M": 256, "BLOCK_SIZE_N": 256, "num_stages": 2},
         {"BLOCK_SIZE_M": 256, "BLOCK_SIZE_N": 256, "num_stages": 3}, "gfx942"),
    Case("tile_not_beyond_matrix", (17, 512, 512), {"BLOCK_SIZE_M": 32}, {"BLOCK_SIZE_M": 64}),
    Case("tile_not_beyond_matrix", (1, 512, 512), {"BLOCK_SIZE_M": 16}, {"BLOCK_SIZE_M": 32}),
    Case("tile_not_beyond_matrix", (512, 100, 512), {"BLOCK_SIZE_N": 128}, {"BLOCK_SIZE_N": 256}),
    Case("tile_not_beyond_matrix", (512, 512, 16), {"BLOCK_SIZE_K": 32}, {"BLOCK_SIZE_K": 64}),
    Case("accumulator_fits_registers", (4096, 4096, 4096), {"BLOCK_SIZE_N": 256, "num_warps": 8},
         {"BLOCK_SIZE_N": 256, "num_warps": 4}),
    Case("accumulator_fits_accumulation_registers", (4096, 4096, 4096),
         {"BLOCK_SIZE_M": 256, "BLOCK_SIZE_N": 256, "num_warps": 4},
         {"BLOCK_SIZE_M": 256, "BLOCK_SIZE_N": 256, "num_warps": 2}, "gfx942"),
    Case("warps_have_work", (64, 64, 64), {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 16, "num_warps": 2},
         {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 16, "num_warps": 4}),
    Case("warps_have_work", (64, 64, 64), {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 16, "num_warps": 1},
         {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 16, "num_warps": 2}, "gfx942"),
    Case("one_warp_for_small_tiles", (512, 512, 512), {"BLOCK_SIZE_M": 32, "BLOCK_SIZE_N": 32, "num_warps": 1},
         {"BLOCK_SIZE_M": 32, "BLOCK_SIZE_N": 64, "num_warps": 1}),
    Case("split_k_for_few_tiles", (4096, 4096, 4096), {"SPLIT_K": 1}, {"SPLIT_K": 2}),
    Case("split_k_for_few_tiles", (1280, 1280, 65536), {"SPLIT_K": 4}, {"SPLIT_K": 8}),
    Case("split_k_slices_are_long", (64, 64, 1024), {"SPLIT_K": 4}, {"SPLIT_K": 8}),
    Case("split_k_slices_are_long", (64, 64, 1024), {"SPLIT_K": 2, "BLOCK_SIZE_K": 128},
         {"SPLIT_K": 4, "BLOCK_SIZE_K": 128}),
    Case("few_tiles_split_k", (64, 64, 65536), {"SPLIT_K": 32}, {"SPLIT_K": 16}),
    Case("few_tiles_split_k", (64, 64, 1024), {"SPLIT_K": 4}, {"SPLIT_K": 2}),
    Case("group_within_matrix", (256, 512, 512), {"GROUP_SIZE_M": 2}, {"GROUP_SIZE_M": 4}),
    Case("group_within_matrix", (16, 512, 512), {"GROUP_SIZE_M": 1}, {"GROUP_SIZE_M": 2}),
    Case("group_when_operands_exceed_l2", (1024, 1024, 1024), {"GROUP_SIZE_M": 8}, {"GROUP_SIZE_M": 4}),
    Case("stages_have_blocks", (512, 512, 128), {"num_stages": 2}, {"num_stages": 3}),
    Case("stages_have_blocks", (512, 512, 512), {"SPLIT_K": 2, "num_stages": 4}, {"SPLIT_K": 4, "num_stages": 4}),
    Case("large_matrix_large_tile", (2048, 2048, 64), {"BLOCK_SIZE_M": 64}, {"BLOCK_SIZE_M": 32}),
    Case("large_matrix_large_tile", (2048, 2048, 64), {"num_warps": 4}, {"num_warps": 2}),
    Case("large_matrix_large_tile", (1024, 1024, 64), {"BLOCK_SIZE_M": 32}, {"BLOCK_SIZE_M": 16}),
    Case("long_k_long_block", (512, 512, 512), {"BLOCK_SIZE_K": 32}, {"BLOCK_SIZE_K": 16}),
    Case("tall_tile_for_tall_matrix", (129, 512, 512), {"BLOCK_SIZE_M": 32}, {"BLOCK_SIZE_M": 16}),
    Case("wide_tile_for_wide_matrix", (512, 1025, 512), {"BLOCK_SIZE_N": 32}, {"BLOCK_SIZE_N": 16}),
)  # fmt: skip

# The same configuration is cut for the first size and kept for the second: the rule looks at the size.
SIZE_CASES = (
    ("group_when_operands_exceed_l2", {"GROUP_SIZE_M": 4}, (1024, 1024, 1024), (4096, 4096, 4096)),
    ("large_matrix_large_tile", {"BLOCK_SIZE_M": 16}, (1024, 1024, 64), (1023, 1024, 64)),
    ("long_k_long_block", {"BLOCK_SIZE_K": 16}, (16, 16, 512), (16, 16, 511)),
    ("tall_tile_for_tall_matrix", {"BLOCK_SIZE_M": 16}, (129, 16, 16), (128, 16, 16)),
    ("wide_tile_for_wide_matrix", {"BLOCK_SIZE_N": 16}, (16, 1025, 16), (16, 1024, 16)),
    ("few_tiles_split_k", {}, (64, 64, 65536), (8192, 8192, 65536)),
    ("operands_fit_memory", {}, (10**6, 10**6, 16), (10**5, 10**5, 16)),
)


def keeps(rule: Rule, arch: str, size: GemmProblem, changes: dict[str, int]) -> bool:
    base = AMD if arch.startswith("gfx") else {}
    asked = columns(config(**{**base, **changes}), largest=LARGEST)
    return bool(prune.ask(rule, asked, size, device(arch))[0])


@pytest.mark.parametrize("case", CASES, ids=[f"{case.rule}-{index}" for index, case in enumerate(CASES)])
def test_a_rule_keeps_and_cuts(case: Case) -> None:
    rule, size = BY_NAME[case.rule], problem(*case.size, case.dtype)
    assert rule.backend in ("", device(case.arch).target.backend)
    assert keeps(rule, case.arch, size, case.kept)
    assert not keeps(rule, case.arch, size, case.cut)


@pytest.mark.parametrize(("name", "changes", "cut_at", "kept_at"), SIZE_CASES)
def test_a_rule_looks_at_the_size(
    name: str, changes: dict[str, int], cut_at: tuple[int, int, int], kept_at: tuple[int, int, int]
) -> None:
    assert not keeps(BY_NAME[name], "sm_90", problem(*cut_at), changes)
    assert keeps(BY_NAME[name], "sm_90", problem(*kept_at), changes)


@pytest.mark.parametrize(("straight_to_lds", "most_stages"), [("1", 2), ("0", 3)])
def test_loads_straight_to_lds_take_a_stage_more_on_cdna_4(
    monkeypatch: pytest.MonkeyPatch, straight_to_lds: str, most_stages: int
) -> None:
    """Triton's own switch says which; its default differs between 3.6 and 3.9."""
    monkeypatch.setenv("TRITON_HIP_USE_ASYNC_COPY", straight_to_lds)
    rule, size = BY_NAME["lds_fits"], problem(4096, 4096, 4096)
    large = [{"BLOCK_SIZE_M": 256, "BLOCK_SIZE_N": 256, "num_stages": stages} for stages in (1, 2, 3, 4)]
    assert [keeps(rule, "gfx950", size, one) for one in large] == [stages <= most_stages for stages in (1, 2, 3, 4)]


def test_every_rule_has_a_case_and_a_reason() -> None:
    assert {case.rule for case in CASES} == set(BY_NAME)
    for rule in BY_NAME.values():
        assert rule.why.endswith((".", ").")), rule.name
        assert len(rule.why) <= 120, rule.name


def test_the_two_files_hold_the_two_kinds() -> None:
    validity = prune.load_rules(RULES, heuristics=False)
    assert {rule.kind for rule in validity} == {Kind.VALIDITY}
    assert {rule.kind for rule in prune.load_rules(RULES)[len(validity) :]} == {Kind.HEURISTIC}


def row_of(all_columns: Any, row: int) -> Any:
    """One configuration of a space, as columns of length 1."""
    one = {axis: getattr(all_columns, axis)[row : row + 1] for axis in ("family", *AXES)}
    return SimpleNamespace(**one, largest=all_columns.largest)


@pytest.mark.parametrize("arch", ["sm_90", "gfx942"])
@pytest.mark.parametrize("size", [(64, 64, 65536), (4096, 4096, 4096), (17, 5120, 5120)])
@pytest.mark.parametrize("rule", BY_NAME.values(), ids=list(BY_NAME))
def test_one_configuration_and_the_whole_space_agree(rule: Rule, size: tuple[int, int, int], arch: str) -> None:
    everything, asked = shipped(arch).columns, problem(*size)
    whole = prune.ask(rule, everything, asked, device(arch))
    rows = np.random.default_rng(0).choice(len(whole), 60, replace=False)
    alone = [bool(prune.ask(rule, row_of(everything, row), asked, device(arch))[0]) for row in rows]
    assert alone == whole[rows].tolist()


def left(arch: str, size: GemmProblem) -> int:
    candidates = shipped(arch)
    return len(prune.apply(candidates.columns, size, device(arch), candidates.rules).kept)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
def test_every_public_size_has_configurations_everywhere(arch: str, dtype: str) -> None:
    for size in (*PUBLIC_SIZES, (1, 1, 1)):
        assert left(arch, problem(*size, dtype)) > 0, size


@settings(max_examples=50, deadline=None)
@given(st.tuples(*[st.integers(1, 20_000)] * 3), st.sampled_from(["fp16", "fp32"]))
def test_no_size_is_left_with_nothing(size: tuple[int, int, int], dtype: str) -> None:
    for arch in ARCHS:
        assert left(arch, problem(*size, dtype)) > 0, arch

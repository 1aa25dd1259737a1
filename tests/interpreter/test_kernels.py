"""Every family is right at every size, by every configuration: run in Triton's interpreter against float64.

``make test`` takes every configuration, a tenth to a quarter of its pairs with sizes; ``make test-all`` all pairs.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import pytest
from case_runner import Case, interpret
from designs import COL, LAYOUTS, ROW, VARIANTS, case_of, sizes_of, takes

from gemm_tuner.gemm.config import KernelConfig
from gemm_tuner.gemm.problem import GemmProblem

FP16 = GemmProblem(1, 1, 1, "fp16", "fp16", "fp16")
# What is taken by default, (parts, step, part): the pairs of row r of the sizes and column c of the configurations for
# which (step * r + c) % parts == part. Found by trying: with the fewest tiles of those that have every configuration,
# nearly every size, every layout, EVEN_K both ways, several K_BY, and every way to share out work.
SAMPLES = {
    "gemm_tile": (5, 1, 2), "gemm_persistent, pointers": (7, 6, 1), "gemm_persistent, descriptors": (11, 10, 4),
    "gemm_split_k, pointers": (5, 4, 3), "gemm_split_k, descriptors": (4, 3, 1), "gemm_stream_k, pointers": (5, 4, 2),
    "gemm_stream_k, descriptors": (4, 3, 1), "gemm_packed, pointers": (7, 6, 2),
    "gemm_packed, descriptors": (10, 9, 4), "gemv": (5, 1, 0),
}  # fmt: skip


def is_sampled(name: str, row: int, column: int) -> bool:
    parts, step, part = SAMPLES[name]
    return (step * row + column) % parts == part


SMS = 4  # as the interpreter's launches have it


def grid_of(name: str, folder: Path, *, rest: bool = False) -> list[Case]:
    """Every size with every configuration that takes it, in one layout or another; C_in and bias with some.

    Those of the sample; rest: the others.
    """
    variant, cases = VARIANTS[name], []
    layouts = itertools.cycle(LAYOUTS)
    plain = itertools.cycle((True, False, False))
    for (row, size), (column, one) in itertools.product(enumerate(sizes_of(variant)), enumerate(variant.configs)):
        more = {} if next(plain) else {"bias": True, "beta": 0.5}
        for layout_a, layout_b in itertools.islice(layouts, 5):  # 5: the next pair begins with another layout
            problem = GemmProblem(*size, "fp16", "fp16", "fp16", layout_a, layout_b, **more)  # type: ignore[arg-type]
            if takes(variant, problem, one):
                if is_sampled(name, row, column) != rest:
                    cases.append(case_of(folder, variant, problem, one))
                break
    return cases


@pytest.mark.parametrize("rest", [False, pytest.param(True, marks=pytest.mark.grid)], ids=["part", "rest"])
@pytest.mark.parametrize("name", VARIANTS)
def test_every_size_is_right_by_every_configuration(tmp_path: Path, name: str, rest: bool) -> None:
    cases = grid_of(name, tmp_path, rest=rest)
    results = interpret(cases)
    assert {case.key: result.message for case, result in zip(cases, results, strict=True) if not result.ok} == {}
    flags = {tuple(sorted(result.flags.items())) for result in results}
    if "EVEN_K" in results[0].flags:
        assert {dict(f)["EVEN_K"] for f in flags} == {False, True}
    if "K_BY" in results[0].flags:
        assert len({dict(f)["K_BY"] for f in flags}) > 1


@pytest.mark.parametrize("name", VARIANTS)
def test_the_sample_has_every_configuration_layout_and_nearly_every_size(tmp_path: Path, name: str) -> None:
    sample = grid_of(name, tmp_path)
    every = [*sample, *grid_of(name, tmp_path, rest=True)]
    assert {case.config for case in sample} == {case.config for case in every} == set(VARIANTS[name].configs)
    layouts, all_layouts = ({(c.problem.layout_a, c.problem.layout_b) for c in cases} for cases in (sample, every))
    assert layouts == all_layouts and {case.problem.bias for case in sample} == {False, True}
    sizes, all_sizes = ({(c.problem.m, c.problem.n, c.problem.k) for c in cases} for cases in (sample, every))
    assert len(sizes) >= 0.75 * len(all_sizes)


def counts(problem: GemmProblem, one: KernelConfig) -> tuple[int, int]:
    """(tiles of C, blocks of K)."""
    tiles = -(-problem.m // one.BLOCK_SIZE_M) * -(-problem.n // one.BLOCK_SIZE_N)
    return tiles, -(-problem.k // one.BLOCK_SIZE_K)


@pytest.mark.parametrize("kind", ["pointers", "descriptors"])
def test_the_sizes_meet_every_way_to_share_out_work(tmp_path: Path, kind: str) -> None:
    met = set()
    for case in grid_of(f"gemm_stream_k, {kind}", tmp_path):
        tiles, blocks = counts(case.problem, case.config)
        programs = min(SMS * case.config.PROGRAMS_PER_SM, tiles * blocks)
        shared = tiles % programs
        share = -(-shared * blocks // programs)
        contributors = {len({(t * blocks + b) // share for b in range(blocks)}) for t in range(shared)}
        met |= {"whole waves"} if not shared else {"fewer tiles than programs"} if tiles < programs else {"both"}
        met |= {f"{count} contributors" for count in contributors if count > 1}
        met |= {"a program without work"} if shared and (programs - 1) * share >= shared * blocks else set()
    assert met >= {"whole waves", "fewer tiles than programs", "both", "2 contributors", "3 contributors"}
    assert "a program without work" in met
    for case in grid_of(f"gemm_persistent, {kind}", tmp_path):
        tiles, _ = counts(case.problem, case.config)
        programs = SMS * case.config.PROGRAMS_PER_SM
        met |= {"one tile each"} if not programs else {"programs fit"} if tiles <= programs else {"several tiles each"}
    assert met >= {"one tile each", "programs fit", "several tiles each"}
    for case in grid_of(f"gemm_split_k, {kind}", tmp_path):
        _, blocks = counts(case.problem, case.config)
        each = -(-blocks // case.config.SPLIT_K)
        met |= {"a slice without a block"} if (case.config.SPLIT_K - 1) * each >= blocks else {"all slices"}
    assert met >= {"a slice without a block", "all slices"}


def programs_of(case: Case) -> int:
    """Programs along the grid's first axis; not for stream-K."""
    tiles, _ = counts(case.problem, case.config)
    if case.config.family == "gemm_split_k":
        return tiles * case.config.SPLIT_K
    return min(tiles, SMS * case.config.PROGRAMS_PER_SM or tiles)


@pytest.mark.parametrize("name", ["gemm_tile", "gemm_persistent, pointers", "gemm_split_k, pointers"])
def test_the_sizes_meet_fewer_programs_than_chiplets_and_uneven_shares(tmp_path: Path, name: str) -> None:
    grids = [programs_of(case) for case in grid_of(name, tmp_path) if case.config.NUM_XCDS == 8]
    assert any(1 < grid < 8 for grid in grids) and any(grid > 8 and grid % 8 for grid in grids)


def test_the_configurations_store_c_in_every_number_of_parts() -> None:
    parts = {name: {one.EPILOGUE_SUBTILE for one in variant.configs} for name, variant in VARIANTS.items()}
    assert parts.pop("gemm_persistent, descriptors") == parts.pop("gemm_packed, descriptors") == {1, 2, 3, 4}
    assert parts.pop("gemm_tile") == parts.pop("gemv") == {1}
    assert all(found == {1, 2, 4} for found in parts.values())
    assert {one.STREAM_B for variant in VARIANTS.values() for one in variant.configs} == {0, 1}


WIDE = {
    "gemm_tile": (2, 4), "gemm_persistent, pointers": (1,), "gemm_split_k, pointers": (2,),
    "gemm_stream_k, pointers": (1,), "gemv": (4, 7),
}  # fmt: skip


@pytest.mark.parametrize("turn", [None, *(pytest.param(turn, marks=pytest.mark.grid) for turn in (0, 1))])
@pytest.mark.parametrize("name", WIDE)
def test_wide_offsets_and_masks_that_are_not_needed_change_no_bit(tmp_path: Path, name: str, turn: int | None) -> None:
    """Every configuration in two layouts, each with half of the flags; with ``-m grid`` in four, each with all."""
    variant, cases = VARIANTS[name], []
    side, depth = (8, 192) if name == "gemv" else (40, 384)  # K of whole blocks in every slice
    for (place, layouts), (row, number) in itertools.product(enumerate(LAYOUTS), enumerate(WIDE[name])):
        if (place in (0, 3)) == ((row + (turn or 0)) % 2 == 1):  # the two of a turn differ in A and in B
            continue
        even = GemmProblem(side, 40, depth, "fp16", "fp16", "fp16", *layouts)
        odd = replace(even, m=min(side, 33), n=17, k=47)
        by = ("K_BY", 8), ("COLUMNS_BY" if name == "gemv" else "N_BY", 1)
        flags: list[tuple[tuple[str, int], ...]] = [(), (("WIDE", 1),), (("EVEN_K", 0),), by]
        one = variant.configs[number]
        evens, odds = flags, flags[:2]
        if turn is None:
            evens, odds = (flags[:3], []) if place in (0, 1) else ([*flags[:1], *flags[3:]], flags[:2])
        cases += [case_of(tmp_path, variant, even, one, flags=changed) for changed in evens]
        cases += [case_of(tmp_path, variant, odd, one, flags=changed) for changed in odds]
    results = interpret(cases)
    digests: dict[tuple[GemmProblem, str], set[str]] = {}
    for case, result in zip(cases, results, strict=True):
        assert result.ok, f"{case.key}: {result.message}"
        assert all(result.flags[flag] == value for flag, value in case.flags)
        digests.setdefault((case.problem, case.config.name), set()).update(result.digests)
    assert all(len(found) == 1 for found in digests.values())


@pytest.mark.parametrize("part", [True, pytest.param(False, marks=pytest.mark.grid)], ids=["part", "all"])
def test_every_layout_meets_every_configuration_of_a_tile(tmp_path: Path, part: bool) -> None:
    """fp32 and bf16 too, in every layout, with one size that has all edges."""
    variant = VARIANTS["gemm_tile"]
    cases = []
    factors = itertools.product(*map(enumerate, (LAYOUTS, variant.configs[:5], ("fp32", "bf16"))))
    for (row, layouts), (column, one), (turn, dtype) in factors:
        if part and (row + column + turn) % 2:  # layouts and tile with one of the types
            continue
        problem = GemmProblem(45, 37, 83, dtype, dtype, dtype, *layouts, bias=dtype == "bf16")
        cases.append(case_of(tmp_path, variant, problem, one))
    results = interpret(cases)
    assert {case.key: result.message for case, result in zip(cases, results, strict=True) if not result.ok} == {}
    assert {(c.problem.layout_a, c.problem.layout_b) for c in cases} == {(ROW, ROW), (ROW, COL), (COL, ROW), (COL, COL)}


@pytest.mark.parametrize("name", ["gemm_tile", "gemm_split_k, pointers", "gemm_split_k, descriptors"])
def test_slices_without_blocks_read_no_scale_beyond_the_last(tmp_path: Path, name: str) -> None:
    """5 blocks of K in 4 slices: gemm_tile's later slices go one block beyond K. Behind the scales memory ends."""
    one = KernelConfig(VARIANTS[name].family, 16, 16, 128, 1, SPLIT_K=4, num_warps=4, num_stages=2)
    variant = replace(VARIANTS[name], configs=(one,))
    problem = GemmProblem(16, 128, 640, "fp8_e4m3", "fp8_e4m3", "bf16", ROW, COL, scaling="block")
    (result,) = interpret([case_of(tmp_path, variant, problem, one)])
    assert result.ok, result.message

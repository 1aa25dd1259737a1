"""The kernels give the right product: run in Triton's interpreter against float64, without a GPU."""

from __future__ import annotations

import itertools
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from case_runner import Case, Result, interpret

from gemm_tuner import codegen
from gemm_tuner.records import GemmProblem, KernelConfig, Layout

ROOT = Path(__file__).resolve().parents[2]
ROW, COL = Layout.ROW, Layout.COL
LAYOUTS = tuple(itertools.product((ROW, COL), (ROW, COL)))
SMALL = KernelConfig("gemm_tile", 16, 16, 16, GROUP_SIZE_M=1, SPLIT_K=1, num_warps=1, num_stages=2)
TALL = replace(SMALL, BLOCK_SIZE_M=32, BLOCK_SIZE_K=32, GROUP_SIZE_M=2)
EIGHT = replace(SMALL, BLOCK_SIZE_N=32, GROUP_SIZE_M=8)
SPLIT_2 = replace(SMALL, SPLIT_K=2, GROUP_SIZE_M=2)
SPLIT_4 = replace(SMALL, BLOCK_SIZE_K=32, SPLIT_K=4)
CONFIGS = (SMALL, TALL, EIGHT, SPLIT_2, SPLIT_4)

# (m, n, k): ones, odd numbers, primes, one more and one less than a tile.
SIZES = [(1, 1, 1), (1, 17, 7), (7, 1, 17), (17, 7, 1), (1, 33, 64), (31, 1, 33), (33, 31, 47), (17, 17, 128)]
EVEN = [(32, 32, 128), (16, 48, 256)]
BY_8 = [(24, 40, 72), (40, 8, 24), (16, 24, 128)]
# 7 and 5 rows of tiles: a ragged last group for GROUP_SIZE_M 2 and 8.
RAGGED_GROUPS = [(7 * 16 - 3, 3 * 16 + 1, 20), (5 * 32 - 1, 2 * 16 + 1, 40)]
SHORT_K = [(17, 20, k) for k in (1, 15, 16, 31, 33, 63, 65)]


def script_of(folder: Path, problem: GemmProblem, templates: Path = ROOT / "templates") -> str:
    folder.mkdir(parents=True, exist_ok=True)
    return str(codegen.write_script(templates, folder, "gemm_tile", problem, CONFIGS, "cuda").path)


def cases_of(folder: Path, dtype: str) -> list[Case]:
    """Every layout, with and without bias, over all sizes; the configurations take turns.

    fp16 meets every second size in every layout, the others every fourth: bf16 is interpreted as fp32.
    """
    cases = []
    other = {"fp16": "fp32", "bf16": "fp32", "fp32": "bf16"}[dtype]
    turn = itertools.cycle(CONFIGS)
    for layouts, epilogue in itertools.product(LAYOUTS, ("none", "bias")):
        base = GemmProblem(1, 1, 1, dtype, dtype, dtype, *layouts, epilogue)
        script = script_of(folder, base)
        sizes = SIZES + EVEN + BY_8 + (RAGGED_GROUPS if epilogue == "none" else SHORT_K)
        step = 2 if dtype == "fp16" else 4
        sizes = sizes[LAYOUTS.index(layouts) % step :: step]
        cases += [Case(script, next(turn), replace(base, m=m, n=n, k=k)) for m, n, k in sizes]
        next(turn)  # so that a size meets other configurations in the next layout
    for dtype_c, config in itertools.product((other,), (TALL, SPLIT_2)):
        base = GemmProblem(33, 18, 50, dtype, dtype, dtype_c, epilogue="bias")
        cases.append(Case(script_of(folder, base), config, base))
    base = GemmProblem(1, 1, 1, dtype, dtype, dtype)
    script = script_of(folder, base)
    corners = [(17, 20, 1), (17, 20, 100), (17, 20, 48), (17, 20, 96), (16, 16, 256), (16, 24, 128)]
    if dtype == "fp16":
        corners += RAGGED_GROUPS
    for config, (m, n, k) in itertools.product(CONFIGS, corners):
        cases.append(Case(script, config, replace(base, m=m, n=n, k=k)))
    return cases


@pytest.fixture(scope="module", params=["fp16", "bf16", "fp32"])
def checked(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Case, Result]]:
    folder = tmp_path_factory.mktemp(request.param)
    cases = cases_of(folder, request.param)
    return list(zip(cases, interpret(cases, folder), strict=True))


def test_every_size_layout_and_configuration_is_right(checked: list[tuple[Case, Result]]) -> None:
    assert {case.key: result.message for case, result in checked if not result.ok} == {}


def test_the_cases_meet_every_specialisation_of_the_kernel(checked: list[tuple[Case, Result]]) -> None:
    seen = {(r.flags["EVEN_K"], r.flags["BY_8"], c.config.SPLIT_K > 1) for c, r in checked}
    assert seen == set(itertools.product((False, True), (False, True), (False, True)))
    assert {c.config.GROUP_SIZE_M for c, _ in checked} == {1, 2, 8}
    assert {c.config.SPLIT_K for c, _ in checked} == {1, 2, 4}
    assert len({(c.problem.layout_a, c.problem.layout_b, c.config) for c, _ in checked}) == 4 * len(CONFIGS)


def test_wide_offsets_and_masks_that_are_not_needed_change_no_bit(tmp_path: Path) -> None:
    variants = ((), (("WIDE", True),), (("EVEN_K", False),), (("BY_8", True),))
    cases = []
    for layouts, config in [*itertools.product(LAYOUTS, (TALL,)), ((COL, ROW), SPLIT_4)]:
        base = GemmProblem(40, 40, 128, "fp16", "fp16", "fp16", *layouts)
        script = script_of(tmp_path, base)
        cases += [Case(script, config, base, flags) for flags in variants]
        cases += [Case(script, config, replace(base, m=33, n=17, k=47), flags) for flags in variants[:2]]
    results = interpret(cases, tmp_path)
    assert {case.key: result.message for case, result in zip(cases, results, strict=True) if not result.ok} == {}
    digests: dict[tuple[GemmProblem, str], set[str]] = {}
    for case, result in zip(cases, results, strict=True):
        digests.setdefault((case.problem, case.config.name), set()).update(result.digests)
    assert all(len(found) == 1 for found in digests.values())


def test_split_k_gives_the_same_bits_in_every_run(tmp_path: Path) -> None:
    base = GemmProblem(33, 18, 203, "bf16", "bf16", "fp32", epilogue="bias")
    script = script_of(tmp_path, base)
    results = interpret([Case(script, config, base, repeats=4) for config in (SPLIT_2, SPLIT_4)], tmp_path)
    assert all(result.ok and len(set(result.digests)) == 1 for result in results)
    assert results[0].digests[0] != results[1].digests[0], "SPLIT_K did not change the order of the sum"


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_nan_and_inf_come_out_where_torch_has_them(tmp_path: Path, dtype: str) -> None:
    """In the last row and column, and next to the masked end of K, where a wrong mask would spread them."""
    m, n, k = 19, 21, 23
    poisons = [
        (("a", 0, NAN),),
        (("a", m * k - 1, INF), ("b", n * k - 1, -INF)),
        (("a", k - 1, INF), ("b", (k - 1) * n, 0.0)),  # Inf * 0
        (("a", 3 * k, INF), ("a", 3 * k + 1, -INF)),
        (("bias", n - 1, NAN), ("bias", 0, INF)),
        (("a", 5 * k, 60000.0), ("a", 5 * k + 1, 60000.0), ("b", 2, 1.0), ("b", n + 2, 1.0)),  # beyond fp16
    ]
    base = GemmProblem(m, n, k, dtype, dtype, dtype, epilogue="bias")
    script = script_of(tmp_path, base)
    cases = [Case(script, c, base, poison=p) for p, c in itertools.product(poisons, (SMALL, TALL, SPLIT_4))]
    results = interpret(cases, tmp_path)
    assert [(case.poison, result.message) for case, result in zip(cases, results, strict=True) if not result.ok] == []


def test_an_infinity_that_the_kernel_loses_is_wrong(tmp_path: Path) -> None:
    base = GemmProblem(19, 21, 23, "fp16", "fp16", "fp16")
    templates = broken_templates(
        tmp_path, "gemm_tile.py.j2", "offs_k[None, :] < k_left", "offs_k[None, :] < k_left - 1"
    )
    (result,) = interpret(
        [Case(script_of(tmp_path, base, templates), SMALL, base, poison=(("a", 2 * 23 - 1, INF),))], tmp_path
    )
    assert not result.ok and result.worst_element[0] == 1 and "inf times the bound" in result.message


def broken_templates(tmp_path: Path, name: str, right: str, wrong: str) -> Path:
    """A copy of the templates with one fault."""
    folder = tmp_path / "templates"
    shutil.copytree(ROOT / "templates", folder)
    text = (folder / name).read_text(encoding="utf-8")
    assert text.count(right) == 1
    (folder / name).write_text(text.replace(right, wrong), encoding="utf-8")
    return folder


BLOCKS_OF_K = "tl.cdiv(K, BLOCK_SIZE_K * SPLIT_K)"
FAULTS = {
    "last term of K masked away": ("gemm_tile.py.j2", "offs_k[None, :] < k_left", "offs_k[None, :] < k_left - 1"),
    "last block of K left out": ("gemm_tile.py.j2", BLOCKS_OF_K, "K // (BLOCK_SIZE_K * SPLIT_K)"),
    "last row not stored": ("gemm_tile.py.j2", "(rows[:, None] < M)", "(rows[:, None] < M - 1)"),
    "last column not stored": ("gemm_tile.py.j2", "(columns[None, :] < N)", "(columns[None, :] < N - 1)"),
    "last slice not added": ("_macros.j2", "tl.static_range(SPLIT_K)", "tl.static_range(SPLIT_K - 1)"),
    "end of the reduction not stored": ("_macros.j2", "inside = offsets < numel", "inside = offsets < numel - 1"),
    "bias added in the wrong column": ("_macros.j2", "offsets % N, mask", "(offsets + 1) % N, mask"),
    "group of tiles counted wrongly": ("_macros.j2", "min(num_pid_m - first_pid_m, GROUP_SIZE_M)", "GROUP_SIZE_M"),
}
UNWRITTEN = {"last row not stored": (32, None), "last column not stored": (None, 18)}


def test_the_check_finds_every_planted_fault(tmp_path: Path) -> None:
    base = GemmProblem(33, 19, 39, "bf16", "bf16", "bf16", epilogue="bias")
    cases = []
    for number, fault in enumerate(FAULTS.values()):
        folder = tmp_path / str(number)
        folder.mkdir()
        cases.append(Case(script_of(folder, base, broken_templates(folder, *fault)), SPLIT_2, base))
    results = dict(zip(FAULTS, interpret(cases, tmp_path), strict=True))
    assert [fault for fault, result in results.items() if result.ok] == []
    for result in results.values():
        row, column = result.worst_element
        assert result.message.startswith(f"C[{row}, {column}] is ")
    for fault, (row, column) in UNWRITTEN.items():
        found = results[fault]
        assert found.worst_element[0] == row or found.worst_element[1] == column
        assert f"C[{found.worst_element[0]}, {found.worst_element[1]}] is nan" in found.message


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("offs_m = rows % M", "offs_m = rows"),
        ("offs_n = columns % N", "offs_n = columns"),
        (", mask=offs_k[:, None] < k_left, other=0.0", ""),
        (", mask=inside)", ")"),
    ],
)
def test_a_step_outside_a_matrix_kills_the_process(tmp_path: Path, right: str, wrong: str) -> None:
    """So the other tests show that the kernels touch nothing beyond the ends of A, B, C and the bias."""
    base = GemmProblem(33, 19, 39, "fp16", "fp16", "fp16")
    large = replace(SMALL, BLOCK_SIZE_M=128, BLOCK_SIZE_N=256, BLOCK_SIZE_K=128)
    templates = broken_templates(tmp_path, "gemm_tile.py.j2", right, wrong)
    script = codegen.write_script(templates, tmp_path, "gemm_tile", base, [large], "cuda").path
    with pytest.raises(AssertionError, match="exit status -11"):
        interpret([Case(str(script), large, base)], tmp_path)

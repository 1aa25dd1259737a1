"""matmul of an exported module in Triton's interpreter: right at tuned sizes and at any other; an operator of torch.

``make test`` takes layouts, scalings and epilogues in turns over the sizes; ``make test-all`` all of them at each size.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import module_runner
import pytest
from designs import COL, ROW
from module_files import CONFIGS, choice, choices, write_results
from module_runner import interpret

from gemm_tuner.export.gemm.module import write_module
from gemm_tuner.gemm.config import KernelConfig
from gemm_tuner.gemm.problem import GemmProblem

T = TypeVar("T")
U = TypeVar("U")
PAIRS = ((ROW, ROW), (ROW, COL), (COL, ROW))
ODD = ((2, 67, 130), (63, 65, 127), (96, 63, 31), (17, 64, 250), (16, 63, 256))
NEAR = ((40, 104, 72), (112, 56, 40), (24, 64, 200), (88, 72, 64))
VECTORS = ((1, 1, 1), (100, 1, 9), (1, 50, 300), (9, 40, 1))


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("module")
    write_module(write_results(folder / "tuned.yaml", choices("fp16", PAIRS)), folder / "gemm_fp16.py")
    return folder / "gemm_fp16.py"


def answers(module: Path, problems: list[GemmProblem]) -> dict[str, str]:
    """Configuration by problem, after all were found right and all counters zero."""
    found = interpret(module, module_runner.products, cases=[problem.to_dict() for problem in problems])
    assert {key: message for key, message, _ in found["rows"] if message} == {}
    assert found["counters"] == 0
    assert found["plans"] == len(problems)
    return {key: name for key, _, name in found["rows"]}


IN_TURNS = pytest.mark.parametrize("part", [True, pytest.param(False, marks=pytest.mark.grid)], ids=["part", "all"])


@IN_TURNS
def test_tuned_sizes_are_right_by_their_own_kernels_with_and_without_a_bias(module: Path, part: bool) -> None:
    problems, expected = [], {}
    layouts = itertools.cycle(PAIRS)
    for (size, config), bias in in_turns(itertools.product(CONFIGS.items(), (False, True)), 2, part):
        problem = GemmProblem(*size, "fp16", "fp16", "fp16", *next(layouts), bias=bias)
        problems.append(problem)
        expected[problem.key] = config.name
    assert answers(module, problems) == expected


def in_turns(pairs: Iterable[tuple[T, U]], of: int, part: bool) -> list[tuple[T, U]]:
    """Of a product whose second factor has ``of`` values: with ``part`` one pair of each first, the second in turns."""
    return [pair for number, pair in enumerate(pairs) if not part or number // of % of == number % of]


@IN_TURNS
def test_sizes_that_were_not_tuned_are_right_in_every_layout(module: Path, part: bool) -> None:
    """Odd ones, those that descriptors take, and single rows and columns, which are of both layouts."""
    sized = in_turns(itertools.product(ODD + NEAR, PAIRS), len(PAIRS), part)
    problems = [
        GemmProblem(*size, "fp16", "fp16", "fp16", *pair, bias=number % 2 == 0)
        for number, (size, pair) in enumerate(sized)
    ]
    problems += [GemmProblem(*size, "fp16", "fp16", "fp16", bias=True) for size in VECTORS]
    chosen = set(answers(module, problems).values())
    tuned = {config.name for config in CONFIGS.values()}
    assert {name.rpartition("_BM")[0] for name in chosen & tuned} >= {"gemm_persistent", "gemm_split_k", "gemv"}
    assert chosen - tuned


def test_types_of_other_sizes_and_results_of_another_type_are_right(tmp_path: Path) -> None:
    rows = [replace(one, problem=replace(one.problem, dtype_c="fp32")) for one in choices("fp16", [(ROW, COL)])]
    write_module(write_results(tmp_path / "tuned.yaml", rows), tmp_path / "to_fp32.py")
    problems = [
        GemmProblem(*size, "fp16", "fp16", "fp32", ROW, COL, bias=True) for size in ((16, 64, 256), (33, 65, 70))
    ]
    answers(tmp_path / "to_fp32.py", problems)
    few = [one for one in choices("fp32", [(ROW, ROW)]) if one.config.family in ("gemm_persistent", "gemv")]
    write_module(write_results(tmp_path / "tuned.yaml", few), tmp_path / "fp32.py")
    problems = [GemmProblem(*size, "fp32", "fp32", "fp32") for size in ((48, 96, 64), (48, 96, 65), (2, 64, 128))]
    answers(tmp_path / "fp32.py", problems)


@pytest.mark.parametrize(
    "sizes", [[(16, 64, 256)], pytest.param([(64, 64, 128), (33, 17, 65)], marks=pytest.mark.grid)]
)
def test_the_operator_passes_torchs_checks_compiles_and_has_gradients(
    module: Path, sizes: list[tuple[int, int, int]]
) -> None:
    """At a size that splits K, and at others that do not."""
    assert len(interpret(module, module_runner.operator, sizes=sizes)) == len(sizes)


SCALED = ("tensor", "block", "row_col")  # in turns, none of them at a size whose family does not take it


@IN_TURNS
def test_every_scaling_of_fp8_is_right_at_tuned_sizes_and_others(tmp_path: Path, part: bool) -> None:
    fp8 = {"dtype_a": "fp8_e4m3", "dtype_b": "fp8_e4m3", "dtype_c": "bf16", "layout_b": COL}
    tuned = [one for one in choices("fp16", [(ROW, COL)]) if one.problem.k > 64]
    rows = [
        replace(one, problem=GemmProblem(*size_of(one.problem), **fp8, scaling=scaling))  # type: ignore[arg-type]
        for one in tuned
        for scaling in SCALED
        if scaling != "block" or one.config.family != "gemv"
    ]
    write_module(write_results(tmp_path / "tuned.yaml", rows), tmp_path / "fp8.py")
    sizes = (*map(size_of, (one.problem for one in tuned)), (33, 130, 140), (40, 200, 72))
    problems = [
        GemmProblem(*size, **fp8, scaling=scaling, bias=number % 2 == 0)  # type: ignore[arg-type]
        for number, (size, scaling) in enumerate(in_turns(itertools.product(sizes, SCALED), len(SCALED), part))
    ]
    chosen = answers(tmp_path / "fp8.py", problems)
    assert len({name.rpartition("_BM")[0] for name in chosen.values()}) > 2


def size_of(problem: GemmProblem) -> tuple[int, int, int]:
    return problem.m, problem.n, problem.k


@IN_TURNS
def test_batches_and_epilogues_are_right_in_bf16(tmp_path: Path, part: bool) -> None:
    """bf16, the default type, whose bits the interpreter would multiply as they are."""
    shared = {"dtype_a": "bf16", "dtype_b": "bf16", "dtype_c": "bf16"}
    kinds: list[dict[str, Any]] = [
        {"batch": 3},
        {"batch": 3, "alpha": 0.5, "beta": 2.0, "bias": True, "activation": "gelu"},
        {"alpha": 0.5},
        {"beta": -1.0, "activation": "relu"},
        {"bias": True, "activation": "silu"},
        {},
    ]
    configs = {"gemm_tile": (32, 48, 64), "gemm_persistent": (96, 64, 32)}
    rows = [
        choice(GemmProblem(*configs[family], **{**shared, **kind}), CONFIGS[configs[family]])
        for kind in kinds
        for family in configs
        if family == "gemm_tile" or "batch" not in kind
    ]
    write_module(write_results(tmp_path / "tuned.yaml", rows), tmp_path / "bf16.py")
    sizes = (*configs.values(), (17, 33, 65), (24, 40, 56))
    pairs = itertools.product(range(len(kinds)), sizes)
    problems = [
        GemmProblem(*size, **{**shared, **kinds[kind]})
        for number, (kind, size) in enumerate(pairs)
        if not part or number % 2 == kind % 2
    ]
    answers(tmp_path / "bf16.py", problems)


@pytest.mark.parametrize(
    "names", [("none", "gelu"), pytest.param(("none", "relu", "gelu", "silu"), marks=pytest.mark.grid)]
)
def test_epilogues_have_gradients_and_compile(tmp_path: Path, names: tuple[str, ...]) -> None:
    rows = [
        choice(
            GemmProblem(8, 24, 16, "fp32", "fp32", "fp32", batch=2, bias=True, alpha=0.5, beta=2.0, activation=name),
            KernelConfig("gemm_tile", 16, 16, 16, 1, 1, 4, 2),
        )
        for name in names
    ]
    write_module(write_results(tmp_path / "tuned.yaml", rows), tmp_path / "fp32.py")
    assert interpret(tmp_path / "fp32.py", module_runner.epilogues, names=names) == list(names)


def test_one_file_may_hold_several_results_of_the_same_operands(tmp_path: Path) -> None:
    plain = choices("fp16", [(ROW, COL)])
    rows = [replace(one, problem=replace(one.problem, dtype_c=dtype)) for one in plain for dtype in ("fp32", "fp16")]
    made = write_module(write_results(tmp_path / "tuned.yaml", rows), tmp_path / "both.py")
    assert (made.num_sizes, made.left_out) == (len(rows), ())
    answers(tmp_path / "both.py", [plain[0].problem])
    assert interpret(tmp_path / "both.py", module_runner.results) == ["torch.float16", "torch.float32"]


def test_descriptors_are_left_where_memory_is_not_aligned(module: Path) -> None:
    assert interpret(module, module_runner.unaligned) == ["gemm_persistent", "gemm_tile"]


def test_calls_that_are_not_taken_are_told_why(module: Path) -> None:
    said = interpret(module, module_runner.faults)
    wanted = {
        "inner": "ValueError: a is (8, 4) and b (5, 8); accepted: a [M, K], b [K, N]",
        "3d": "ValueError: a is (2, 8, 4)",
        "empty": "ValueError: M, N and K are 0, 8 and 4; accepted: 1 to",
        "type": "TypeError: a is torch.float16 and b torch.float32; tuned: torch.float16 by torch.float16",
        "gaps in a": "ValueError: no kernel for a of shape (8, 4) and strides (8, 1)",
        "layout": "ValueError: no kernel for a of shape (8, 4) and strides (1, 8) by b of shape (4, 8) and strides",
        "bias shape": "ValueError: bias is (8, 1) of torch.float16; accepted: [N] of torch.float16",
        "bias type": "ValueError: bias is (8,) of torch.float32",
        "bias stride": "ValueError: bias has stride 2",
        "device": "ValueError: the tensors are on several devices: cpu, meta",
        "activation": "ValueError: activation is 'tanh'; accepted: none, relu, gelu, silu",
        "not tuned": "TypeError: no kernel of fp16_nn with relu after the product; tuned: nothing; bias",
        "alpha": "TypeError: no kernel of fp16_nn with alpha after the product",
        "scales": "ValueError: scale_a is (1,) and scale_b (1,); tuned: none",
        "result": "TypeError: no kernel for a result of torch.float32",
        "c": "ValueError: c is (8, 9) of torch.float16",
        "cpu": "the tensors are on cpu; accepted: a GPU",
    }
    assert {name: said[name][: len(text)] for name, text in wanted.items()} == wanted

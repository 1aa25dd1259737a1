"""matmul of an exported module in Triton's interpreter: right at tuned sizes and at any other; an operator of torch."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path

import pytest
from designs import COL, ROW
from module_files import CONFIGS, choices, write_results
from module_runner import interpret

from gemm_tuner.module_export import write_module
from gemm_tuner.records import GemmProblem

PAIRS = ((ROW, ROW), (ROW, COL), (COL, ROW))
ODD = ((2, 67, 130), (63, 65, 127), (96, 63, 31), (17, 64, 250), (16, 63, 256))
NEAR = ((40, 104, 72), (112, 56, 40), (24, 64, 200), (88, 72, 64))
VECTORS = ((1, 1, 1), (100, 1, 9), (1, 50, 300), (9, 40, 1))


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("module")
    write_module(write_results(folder / "tuned.yaml", choices("fp16", PAIRS)), folder / "gemm_fp16.py")
    return folder / "gemm_fp16.py"


def answers(module: Path, problems: list[GemmProblem], folder: Path) -> dict[str, str]:
    """Configuration by problem, after all were found right and all counters zero."""
    cases = folder / "cases.json"
    cases.write_text(json.dumps([problem.to_dict() for problem in problems]), encoding="utf-8")
    found = interpret(module, f"cases {cases}", folder)
    assert {key: message for key, message, _ in found["rows"] if message} == {}
    assert found["counters"] == 0
    assert found["plans"] == len(problems)
    return {key: name for key, _, name in found["rows"]}


def test_tuned_sizes_are_right_by_their_own_kernels_with_and_without_a_bias(module: Path, tmp_path: Path) -> None:
    problems, expected = [], {}
    layouts = itertools.cycle(PAIRS)
    for (size, config), bias in itertools.product(CONFIGS.items(), (False, True)):
        problem = GemmProblem(*size, "fp16", "fp16", "fp16", *next(layouts), bias=bias)
        problems.append(problem)
        expected[problem.key] = config.name
    assert answers(module, problems, tmp_path) == expected


def test_sizes_that_were_not_tuned_are_right_in_every_layout(module: Path, tmp_path: Path) -> None:
    """Odd ones, those that descriptors take, and single rows and columns, which are of both layouts."""
    problems = [
        GemmProblem(*size, "fp16", "fp16", "fp16", *pair, bias=number % 2 == 0)
        for number, (size, pair) in enumerate(itertools.product(ODD + NEAR, PAIRS))
    ]
    problems += [GemmProblem(*size, "fp16", "fp16", "fp16", bias=True) for size in VECTORS]
    chosen = set(answers(module, problems, tmp_path).values())
    tuned = {config.name for config in CONFIGS.values()}
    assert {name.rpartition("_BM")[0] for name in chosen & tuned} >= {"gemm_persistent", "gemm_split_k", "gemv"}
    assert chosen - tuned


def test_types_of_other_sizes_and_results_of_another_type_are_right(tmp_path: Path) -> None:
    rows = [replace(one, problem=replace(one.problem, dtype_c="fp32")) for one in choices("fp16", [(ROW, COL)])]
    write_module(write_results(tmp_path / "tuned.yaml", rows), tmp_path / "to_fp32.py")
    problems = [
        GemmProblem(*size, "fp16", "fp16", "fp32", ROW, COL, bias=True) for size in ((16, 64, 256), (33, 65, 70))
    ]
    answers(tmp_path / "to_fp32.py", problems, tmp_path)
    few = [one for one in choices("fp32", [(ROW, ROW)]) if one.config.family in ("gemm_persistent", "gemv")]
    write_module(write_results(tmp_path / "tuned.yaml", few), tmp_path / "fp32.py")
    problems = [GemmProblem(*size, "fp32", "fp32", "fp32") for size in ((48, 96, 64), (48, 96, 65), (2, 64, 128))]
    answers(tmp_path / "fp32.py", problems, tmp_path)


def test_the_operator_passes_torchs_checks_compiles_and_has_gradients(module: Path, tmp_path: Path) -> None:
    assert len(interpret(module, "operator", tmp_path)) == 3


def test_descriptors_are_left_where_memory_is_not_aligned(module: Path, tmp_path: Path) -> None:
    assert interpret(module, "unaligned", tmp_path) == ["gemm_persistent", "gemm_tile"]


def test_calls_that_are_not_taken_are_told_why(module: Path, tmp_path: Path) -> None:
    said = interpret(module, "faults", tmp_path)
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
        "cpu": "the tensors are on cpu; accepted: a GPU",
    }
    assert {name: said[name][: len(text)] for name, text in wanted.items()} == wanted

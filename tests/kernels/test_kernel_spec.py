"""Specs of a user's kernels: what they say of arguments and cases, and how bad ones are refused."""

from __future__ import annotations

import dataclasses
import json
import re
import textwrap
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import yaml
from samples import device

from gemm_tuner.cli.commands import kernel as kernel_command
from gemm_tuner.cli.main import main
from gemm_tuner.core.errors import UserError
from gemm_tuner.core.plain_config import PlainConfig
from gemm_tuner.core.records import Status, Timing
from gemm_tuner.core.workload import problem_from_dict
from gemm_tuner.decide.ranking import judge_of
from gemm_tuner.decide.sheet import sheet_of
from gemm_tuner.kernels import arguments, kernel_spec_file, keys
from gemm_tuner.kernels.problem import KernelProblem
from gemm_tuner.kernels.unseen import unseen
from gemm_tuner.kernels.workload import WORKLOAD, at_most

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "kernels" / "softmax.yaml"


def changed(folder: Path, **keys: Any) -> Path:
    """The example with other keys; None takes one away."""
    row = {**yaml.safe_load(EXAMPLE.read_text()), **keys}
    path = folder / "spec.yaml"
    path.write_text(yaml.safe_dump({key: value for key, value in row.items() if value is not None}, sort_keys=False))
    (folder / "softmax.py").write_text((EXAMPLE.parent / "softmax.py").read_text())
    return path


def test_a_case_and_a_configuration_give_a_launch() -> None:
    spec, cases = kernel_spec_file.read(EXAMPLE)
    assert cases == (
        (("rows", 4096), ("cols", 1000), ("dtype", "fp16")),
        (("rows", 4096), ("cols", 4096), ("dtype", "fp16")),
    )
    params = {"ROWS": 4, "num_warps": 8}
    names = arguments.names_of(spec, dict(cases[0]), params, 132)
    tensors = arguments.tensors_of(spec, names, lambda tensor, dtype, shape: (tensor.name, dtype, shape))
    assert tensors == {"x": ("x", "fp16", (4096, 1000)), "out": ("out", "fp16", (4096, 1000))}
    grid, given = arguments.launch_of(spec, names, params, tensors)
    assert grid == (1024,)
    scalars = {"stride": 1000, "n_rows": 4096, "n_cols": 1000, "BLOCK": 1024, "ROWS": 4, "num_warps": 8}
    assert given == {**tensors, **scalars}


def test_a_problem_comes_back_from_json_as_it_was() -> None:
    spec, (case, other) = kernel_spec_file.read(EXAMPLE)
    problem = KernelProblem.of(spec, case)
    again = problem_from_dict(json.loads(json.dumps(problem.to_dict())))
    assert isinstance(again, KernelProblem) and again == problem and again.spec == spec
    row = problem_from_dict(problem.row())
    assert row == problem and row.key == problem.key and isinstance(row, KernelProblem) and row.spec is None
    assert KernelProblem.of(spec, other) != problem
    assert problem.bytes_moved == 2 * 4096 * 1000 * 2


def test_another_text_of_the_kernel_is_another_problem(tmp_path: Path) -> None:
    path = changed(tmp_path)
    spec, (case, _) = kernel_spec_file.read(path)
    source = tmp_path / "softmax.py"
    source.write_text(source.read_text().replace("tl.exp(", "tl.exp2("))
    assert KernelProblem.of(kernel_spec_file.read(path)[0], case) != KernelProblem.of(spec, case)


def test_rules_keep_the_same_rows_as_columns_and_one_by_one(tmp_path: Path) -> None:
    rules = ["ROWS <= rows", {"keep": "BLOCK <= 2048 * num_warps", "why": "registers"}]
    spec, cases = kernel_spec_file.read(
        changed(tmp_path, rules=rules, cases={"rows": 2, "cols": 4096, "dtype": "fp16"})
    )
    problem = KernelProblem.of(spec, cases[0])
    own = WORKLOAD.own_space([problem], device("sm_90"))
    assert [(name, why) for name, why, _ in own.rules] == [("rule_1", "ROWS <= rows"), ("rule_2", "registers")]

    class Columns:
        family = np.array(["softmax_rows"] * 3)
        ROWS = np.array([1, 4, 1])
        num_warps = np.array([1, 2, 2])

    kept = [keep(Columns, problem, _Device).tolist() for _, _, keep in own.rules]
    assert kept == [[True, False, True], [False, True, True]]


class _Device:
    num_sms = 132


def test_checks_are_small_in_the_interpreter_and_ragged_beside() -> None:
    spec, (case, _) = kernel_spec_file.read(EXAMPLE)
    sized, odd = WORKLOAD.check_problems(KernelProblem.of(spec, case), {}, descriptors=False, interpreted=True)
    assert dict(sized.case)["cols"] == 128 and dict(odd.case)["cols"] % 2 == 1
    sized, _ = WORKLOAD.check_problems(KernelProblem.of(spec, case), {}, descriptors=False, interpreted=False)
    assert sized.case == case
    assert at_most((("rows", 3), ("causal", True), ("dtype", "fp16")), 61) == (
        ("rows", 3), ("causal", True), ("dtype", "fp16"),
    )  # fmt: skip


ARGS = yaml.safe_load(EXAMPLE.read_text())["args"]


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"tenors": {}}, "did you mean tensors?"),
        ({"tensors": None}, "or --host FILE.py:FUNCTION"),
        ({"kernel": None}, "names no kernel"),
        ({"kernel": "softmax.py:softmax_row"}, "did you mean softmax_rows?"),
        ({"kernel": "absent.py:f"}, "absent.py"),
        ({"kernel": "softmax.py"}, "FILE.py:NAME"),
        ({"manual_check": "softmax.py:reference"}, "a reference and a manual_check"),
        ({"check": {"max_mismatch_ratio": 0.1}}, "did you mean"),
        ({"check": {"max_mismatched_ratio": 2}}, "0 to 1"),
        ({"check": {"skip_check": 1}}, "skip_check is 1"),
        ({"reference": "softmax.py:refrence"}, "did you mean reference?"),
        ({"params": {}}, "No configurations to tune"),
        ({"params": {"ROWS": [], "num_warps": [1]}}, "No configurations to tune"),
        ({"params": {"ROWS": [1], "num_wraps": [1]}}, "did you mean num_warps?"),
        ({"params": {"num_warps": [1]}, "grid": "rows"}, "ROWS, a parameter of softmax_rows, gets no value"),
        ({"args": {"stride": "cols", "n_rows": "rows"}}, "n_cols, a parameter of softmax_rows, gets no value"),
        ({"tensors": {"x": {"shape": ["rows"]}}}, "tensors, 'x'"),
        (
            {
                "tensors": {
                    "x": {"shape": "rows", "dtype": "fp61"},
                    "out": {"shape": "rows", "dtype": "fp16", "output": True},
                }
            },
            "fp61",
        ),
        ({"grid": None}, "one to three expressions"),
        ({"grid": ["cdiv(rows", "ROWS)"]}, "put it in quotes"),
        ({"rules": [{"keep": "ROWS <= rows", "reason": "x"}]}, "unknown key 'reason'"),
        ({"rules": ["ROWS.__class__"]}, "ROWS.__class__"),
        ({"cases": [{"rows": [1, [2]]}]}, "holds a list"),
        ({"cases": [{"rows": 4, "cols": 1}, {"rows": 4, "cols": []}]}, "cases: cols has no values"),
        ({"args": {**ARGS, "strid": "rows"}}, "did you mean stride?"),
        ({"args": {**ARGS, "stride": "col"}}, "args, stride: 'col' names col"),
        ({"grid": ["cdiv(rows, ROW)"]}, "did you mean ROWS?"),
        ({"grid": ["rows // (cols - 1000)"]}, "has no value"),
        ({"rules": ["ROWS <= row"]}, "'ROWS <= row' names row"),
        ({"command": "./x", "kernel": None}, "is the spec of a program; tune_gemm.py spec"),
        (
            {"tensors": {"x": {"shape": 1, "dtype": "fp16"}, "out": {"shape": 1, "dtype": "fp16"}}},
            "no tensor is an output",
        ),
        ({"select": "first"}, "accepted: median, last"),
        ({"bytes": "2 * rows * colls"}, "did you mean cols?"),
        ({"key": ["pow2(row)"]}, "did you mean rows?"),
        ({"key": ["bucket(rows)"]}, "has no buckets"),
        ({"buckets": {"small": 256}}, "no key uses them"),
        ({"buckets": {"small": 256, "large": 16}, "key": ["bucket(rows)"]}, "'large' is 16"),
        ({"check": {"rtol": "1e-2"}}, "rtol is '1e-2'"),
    ],
)
def test_what_is_wrong_is_one_line_with_its_place(tmp_path: Path, keys: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError) as caught:
        kernel_spec_file.read(changed(tmp_path, **keys))
    line = caught.value.one_line()
    assert words in line and "\n" not in line


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("def k(out, x, stride, n_rows, n_cols, BLOCK, ROWS): ...\n", "k is not under @triton.jit"),
        ("k = triton.jit(f)\n", "k is no function at the file's top level"),
        ("if True:\n    @triton.jit\n    def k(out): ...\n", "k is no function at the file's top level"),
        ("class k: ...\n", "k is no function at the file's top level"),
    ],
)
def test_a_name_that_is_no_kernel_is_said_so_before_it_is_compiled(tmp_path: Path, source: str, words: str) -> None:
    path = changed(tmp_path, kernel="k.py:k")
    (tmp_path / "k.py").write_text(source)
    with pytest.raises(UserError, match=words) as caught:
        kernel_spec_file.read(path)
    assert "k.py" in caught.value.where and caught.value.hint


def test_what_all_configurations_share_leaves_out_args_that_need_a_parameter(tmp_path: Path) -> None:
    args = {"stride": "cols", "n_rows": "rows", "n_cols": "cols", "BLOCK": "next_power_of_2(cols)", "GROUP": "2 * ROWS"}
    spec, (case, _) = kernel_spec_file.read(changed(tmp_path, args=args, grid=["cdiv(rows, GROUP)"]))
    shared = arguments.names_of(spec, dict(case), None, 132)
    assert shared["BLOCK"] == 1024 and "GROUP" not in shared
    assert arguments.names_of(spec, dict(case), {"ROWS": 4}, 132)["GROUP"] == 8
    with pytest.raises(UserError, match="takes ROWS"):
        arguments.names_of(spec, dict(case), {}, 132)


def test_the_usual_parameters_are_values_that_a_spec_takes(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["spec", "--params"]) == 0
    rows = re.findall(r"^ *(\w+) +(\[.*\]) +(kernel|launch) ", capsys.readouterr().out, re.MULTILINE)
    params = {name: yaml.safe_load(values) for name, values, _ in rows}
    assert len(params) == 8 and set(params["BLOCK_SIZE_M"]) == {16, 32, 64, 128, 256}
    options = {name: params[name] for name, _, of in rows if of == "launch"}
    spec, _ = kernel_spec_file.read(changed(tmp_path, params={"ROWS": [1], **options}))
    assert dict(spec.params)["num_stages"] == (1, 2, 3, 4, 5)


def test_cases_share_a_key_by_powers_of_two_by_buckets_or_not_at_all(tmp_path: Path) -> None:
    cases = {"rows": [256, 900, 1000, 1 << 20], "cols": 64, "dtype": "fp16"}
    exact, of = kernel_spec_file.read(changed(tmp_path, cases=cases))
    assert keys.key_of(exact, of[1]) == (900, 64, "fp16")
    pow2, of = kernel_spec_file.read(changed(tmp_path, cases=cases, key=["pow2(rows)", "dtype"]))
    assert [keys.key_of(pow2, case) for case in of] == [
        (256, "fp16"), (1024, "fp16"), (1024, "fp16"), (1 << 20, "fp16"),
    ]  # fmt: skip
    buckets = {"small": 256, "medium": 2048, "large": "inf"}
    named, of = kernel_spec_file.read(changed(tmp_path, cases=cases, key="bucket(rows)", buckets=buckets))
    assert [keys.text_of(keys.key_of(named, case)) for case in of] == ["small", "medium", "medium", "large"]
    # What a run tuned stays what it is when only the key changes.
    assert {KernelProblem.of(spec, of[0]).sha for spec in (exact, pow2, named)} == {KernelProblem.of(exact, of[0]).sha}
    again = problem_from_dict(json.loads(json.dumps(KernelProblem.of(named, of[0]).to_dict())))
    assert isinstance(again, KernelProblem) and again.spec == named


def test_unseen_cases_have_a_tuned_ones_key_and_lie_among_them(tmp_path: Path) -> None:
    cases = {"rows": [100, 900, 1000], "cols": 64, "dtype": ["fp16", "fp32"]}
    spec, of = kernel_spec_file.read(changed(tmp_path, cases=cases, key=["pow2(rows)", "cols", "dtype"]))
    found = unseen(spec, of, 5, seed=0)
    assert len(set(found)) == 5 and not set(found) & set(of)
    for case in found:
        values = dict(case)
        assert 64 < values["rows"] <= 128 or 512 < values["rows"] <= 1000
        assert values["cols"] == 64 and values["dtype"] in ("fp16", "fp32")
    assert found == unseen(spec, of, 5, seed=0) != unseen(spec, of, 5, seed=1)
    with pytest.raises(UserError, match="pow2"):
        unseen(kernel_spec_file.read(changed(tmp_path, cases=cases))[0], of, 5, seed=0)


def test_the_median_of_a_process_or_its_last_call_decides_finals(tmp_path: Path) -> None:
    """In one process of ten calls each, the first configuration starts slowly and ends as the fastest."""
    times = {"warming": tuple(np.linspace(30.0, 3.0, 10)), "steady": (7.0,) * 10}
    for select, best in (({}, "steady"), ({"select": "median"}, "steady"), ({"select": "last"}, "warming")):
        spec, (case, *_) = kernel_spec_file.read(changed(tmp_path, **select))
        problem = problem_from_dict(KernelProblem.of(spec, case).to_dict())
        sheet = sheet_of(Timing(problem, name, Status.OK, samples) for name, samples in times.items())
        configs: dict[str, Any] = {name: PlainConfig("kernel", (("name", name),)) for name in times}
        assert judge_of([(sheet, configs)]).rank_finalists(sheet, configs).order[0] == best
        assert problem == KernelProblem.of(kernel_spec_file.read(EXAMPLE)[0], case)


def test_the_roofline_is_the_later_of_bytes_and_operations(tmp_path: Path) -> None:
    class Rates:
        dram_gbps, matmul_tflops = 1000.0, (("fp16", 2.0), ("fp8_e4m3", 4.0))

    def roofline_us(dtype: str, **keys: Any) -> float | None:
        cases = {"rows": 10, "cols": 100, "dtype": dtype}
        spec, (case,) = kernel_spec_file.read(changed(tmp_path, cases=cases, bytes=None, **keys))
        return WORKLOAD.roofline_us(KernelProblem.of(spec, case), Rates)

    assert roofline_us("fp16") is None
    assert roofline_us("fp16", flops="rows * 400000") == pytest.approx(2.0)
    assert roofline_us("fp32", flops="rows * 400000") == pytest.approx(1.0)  # its rate is not known


def test_what_follows_from_the_device_is_compiled_as_it_is_launched(tmp_path: Path) -> None:
    """A persistent grid: each program takes every nth row. To the compiler an argument of 1 is a constant."""
    args = {**ARGS, "n_rows": "cdiv(rows, device.num_sms)"}
    spec, (case, _) = kernel_spec_file.read(changed(tmp_path, args=args, grid=["device.num_sms"]))
    smaller = dataclasses.replace(device("sm_90"), num_sms=78)
    (problem,) = WORKLOAD.on_device([KernelProblem.of(spec, case)], smaller)
    problem = problem_from_dict(json.loads(json.dumps(problem.to_dict())))
    script: Any = SimpleNamespace(calls=lambda config, grid, arguments: [("s", None, grid, (), arguments)])
    config = {"name": "one", "ROWS": 1, "num_warps": 1}
    ((_, _, grid, _, given),) = WORKLOAD.compile_calls(script, config, problem, lambda dtype, elements: dtype)
    assert grid == (78,) and given["n_rows"] == -(-4096 // 78)


def test_the_example_of_the_help_is_a_spec(tmp_path: Path) -> None:
    (text,) = re.findall(r"  # softmax\.yaml\n((?:  .*\n)+)", kernel_command.DESCRIPTION)
    (tmp_path / "softmax.py").write_text((EXAMPLE.parent / "softmax.py").read_text())
    (tmp_path / "softmax.yaml").write_text(textwrap.dedent(text))
    spec, cases = kernel_spec_file.read(tmp_path / "softmax.yaml")
    assert spec.reference is not None and len(cases) == 4 and dict(spec.params)["ROWS"] == (1, 2, 4)


def test_explain_takes_a_list_as_names_have_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keys = {"params": {"TILE": [[1, 1], [4, 2]]}, "args": {**ARGS, "ROWS": "TILE[0]"}, "grid": "rows"}
    path = changed(tmp_path, **keys, rules=[{"keep": "TILE[1] == 1", "why": "one column"}])
    assert main(["kernel", "--spec", str(path), "--arch", "sm_90", "--explain", "TILE=4x2"]) == 0
    assert "cut by rule_1 (validity): one column" in capsys.readouterr().out
    assert main(["kernel", "--spec", str(path), "--arch", "sm_90", "--explain", "TILE=4x3"]) == 2
    assert "accepted: 1x1, 4x2" in capsys.readouterr().err

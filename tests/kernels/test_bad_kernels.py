"""What a kernel's spec gets wrong and only a run can find: one line, with the reason said once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import warm_python
import yaml
from command import Done, tune_gemm
from fault_runs import ROOT

from gemm_tuner.core.errors import EXIT_INPUT, EXIT_UNVERIFIED
from gemm_tuner.cute.problem import problem_of
from gemm_tuner.kernels import kernel_spec_file, reference_trial
from gemm_tuner.space.reasons import most_common, reason_lines

EXAMPLE = ROOT / "examples" / "kernels"
SMALL = {"cases": {"rows": [5, 6], "cols": 37, "dtype": "fp16"}, "params": {"ROWS": [1, 2], "num_warps": [1]}}


def run(folder: Path, change: tuple[str, str] = ("", ""), **keys: Any) -> Done:
    source = (EXAMPLE / "softmax.py").read_text()
    assert change[0] in source
    (folder / "softmax.py").write_text(source.replace(*change))
    spec = {**yaml.safe_load((EXAMPLE / "softmax.yaml").read_text()), **SMALL, **keys}
    (folder / "spec.yaml").write_text(yaml.safe_dump(spec, sort_keys=False))
    return tune_gemm(folder, "kernel", "--spec", "spec.yaml", "--arch", "sm_90", "--num_threads", "1")


@pytest.mark.parametrize(
    ("change", "keys", "words"),
    [
        (("dim=-1)", "dim=-1)[:, 1:]"), {}, "reference: the reference returned (5, 36) for outputs of (5, 37)"),
        (("", ""), {"rules": ["ROWS / (ROWS - 1) > 0"]}, "zero encountered in divide (ROWS=1)"),
    ],
)
def test_what_nothing_can_be_tuned_with_ends_at_once(
    tmp_path: Path, change: tuple[str, str], keys: dict[str, Any], words: str
) -> None:
    done = run(tmp_path, change, **keys)
    assert done.returncode == EXIT_INPUT, done.stderr
    (line,) = done.stderr.splitlines()
    assert words in line


def test_cases_of_which_rules_leave_nothing_are_without_a_configuration(tmp_path: Path) -> None:
    done = run(tmp_path, rules=[{"keep": "ROWS > 8", "why": "too small"}])
    assert (done.returncode, "cut by rule_1: too small" in done.stdout) == (EXIT_UNVERIFIED, True), done.stderr


def test_a_reference_that_raises_on_the_cpu_is_told_and_may_still_work_on_a_gpu(tmp_path: Path) -> None:
    change = ("    return torch", "    raise OSError('no\\nfile')\n    return torch")
    (tmp_path / "softmax.py").write_text((EXAMPLE / "softmax.py").read_text().replace(*change))
    (tmp_path / "spec.yaml").write_text((EXAMPLE / "softmax.yaml").read_text())
    spec, (case, *_) = kernel_spec_file.read(tmp_path / "spec.yaml")
    assert reference_trial.tried(problem_of(spec, case)) == ("", "OSError: no file")


def test_a_reference_is_tried_with_no_module_of_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "queue.py").write_text("raise SystemExit(f'{__file__} was imported')")
    (tmp_path / "softmax.py").write_text((EXAMPLE / "softmax.py").read_text().replace("dim=-1)", "dim=-1)[:, 1:]"))
    (tmp_path / "spec.yaml").write_text((EXAMPLE / "softmax.yaml").read_text())
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(warm_python.FOLDER, raising=False)  # warm processes have imported them
    spec, (case, *_) = kernel_spec_file.read(tmp_path / "spec.yaml")
    fault, raised = reference_trial.tried(problem_of(spec, case))
    assert "the reference returned" in fault and not raised


def test_what_fails_for_one_reason_says_it_once(tmp_path: Path) -> None:
    done = run(tmp_path, ("tl.store(", "tl.stor("))
    assert done.returncode == EXIT_UNVERIFIED, done.stderr
    (line,) = [line for line in done.stdout.splitlines() if "stor" in line]
    assert "rows5" in line and "and 1 more" in line and "2 of 2 say: " in line


DIES = """
@triton.constexpr_function
def dies(rows):
    if rows == 2:
        __import__("os").abort()
    return 0.0


@triton.jit
"""


def test_a_configuration_that_crashes_the_compiler_costs_itself_and_is_named_in_one_line(tmp_path: Path) -> None:
    source = (EXAMPLE / "softmax.py").read_text().replace("@triton.jit\n", DIES, 1)
    (tmp_path / "softmax.py").write_text(source.replace("tl.sum(values, 0)", "(tl.sum(values, 0) + dies(ROWS))"))
    cases = {**SMALL, "cases": {"rows": 5, "cols": 37, "dtype": "fp16"}}
    spec = {**yaml.safe_load((EXAMPLE / "softmax.yaml").read_text()), **cases}
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(spec, sort_keys=False))
    flags = ("--arch", "sm_90", "--num_threads", "1", "--compile_only")
    done = tune_gemm(tmp_path, "kernel", "--spec", "spec.yaml", *flags)
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stderr.splitlines() if "died" in line]
    assert line.startswith("1 of 2 kernels do not compile; 1 say: the compiler died")


def test_each_reason_names_its_first_size() -> None:
    assert list(reason_lines({"a": "x", "b": "y", "c": "x", "d": "x"})) == ["a and 2 more: x", "b: y"]
    assert list(reason_lines({"a": "p; 6 of 6 say: x", "b": "p; 4 of 4 say: x"})) == ["a and 1 more: p; 6 of 6 say: x"]


def test_a_reason_is_the_line_of_the_source_where_triton_says_no_more() -> None:
    """Of an assertion without a message it shows the source with a caret below."""
    shown = "CompileTimeAssertionFailure: at 9:8:\ndef softmax_rows(out, x):\n    tl.static_assert(ROWS != 3)\n    ^"
    assert most_common([shown]) == (1, "CompileTimeAssertionFailure: tl.static_assert(ROWS != 3)")
    assert most_common(["\n ^\n"]) == (1, "^"), "nor is it the run's end where nothing but that is said"

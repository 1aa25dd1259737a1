"""Users' kernels in files: a key's configuration, AITER's JSON and triton.Config."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml
from kernel_exports import BUCKETS, FOUR, ONE, TIMES, export, tuned

import gemm_tuner as gt
from gemm_tuner.cli import key_validation
from gemm_tuner.core.errors import EXIT_INPUT
from gemm_tuner.core.records import Verified
from gemm_tuner.kernels.problem import KernelProblem
from gemm_tuner.store import results


def test_json_has_aiters_name_and_layout_and_one_entry_a_key(tmp_path: Path) -> None:
    path = tuned(tmp_path)
    assert export(path, "json", "--device_name", "MI300X") == 0
    file = tmp_path / "out" / "MI300X-SOFTMAX_ROWS.json"
    wanted = {f"{rows}_100_fp16": {"ROWS": 4 if rows > 1000 else 1, "num_warps": 4} for rows in TIMES}
    assert file.read_text() == json.dumps(wanted, indent=4) + "\n"
    file.write_text(json.dumps({"other": {"ROWS": 9}}))
    assert export(path, "json", "--device_name", "MI300X") == 0
    assert json.loads(file.read_text()) == {"other": {"ROWS": 9}, **wanted}


def test_what_no_gpu_timed_or_checked_replaces_no_entry_unless_asked_to(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, file = tuned(tmp_path, source="predicted"), tmp_path / "out" / "sm_90-SOFTMAX_ROWS.json"
    assert export(path, "json", "--predicted") == 0
    predicted = json.loads(file.read_text())
    there = {**predicted, "4096_100_fp16": {"ROWS": 2, "num_warps": 8}}
    file.write_text(json.dumps(there, indent=4) + "\n")
    assert export(path, "json", "--predicted") == 1
    said = capsys.readouterr()
    assert json.loads(file.read_text()) == there
    assert "has another entry for 4096_100_fp16, which a prediction does not replace" in said.err
    assert f"unchanged, {len(TIMES) - 1} keys" in said.out
    assert export(path, "json", "--predicted", "--overwrite") == 0
    assert json.loads(file.read_text()) == predicted
    assert export(path, "source", "--predicted", "--overwrite") == EXIT_INPUT
    (tmp_path / "unchecked").mkdir()
    path = tuned(tmp_path / "unchecked", dict.fromkeys(TIMES, Verified.FALSE))
    file.write_text(json.dumps(there))
    assert export(path, "json", "--unverified", "-o", str(file.parent)) == 1
    assert json.loads(file.read_text()) == there and "what no GPU checked does not" in capsys.readouterr().err


# Other configurations are best at 128 and 4096, and 1000 and 1500 are not among them.
GUESSED = {128: {ONE: 9.0, FOUR: 8.0}, 4096: {ONE: 1.0, FOUR: 2.0}}


@pytest.mark.parametrize("form", ["triton", "module"])
def test_predictions_replace_nothing_measured_in_a_python_file_unless_asked_to(
    form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    measured, guessed = tuned(tmp_path / "a"), tuned(tmp_path / "b", source="predicted", times_of=GUESSED)
    out = tmp_path / "out"
    to = ["-o", str(out)]
    assert export(measured, form, *to) == 0
    (file,) = out.iterdir()
    before = file.read_text()
    assert export(guessed, form, "--predicted", *to) == 1
    assert file.read_text() == before
    said = capsys.readouterr()
    assert "a prediction does not replace; --overwrite does" in said.err and "unchanged, 0 keys" in said.out
    assert export(guessed, form, "--predicted", "--overwrite", *to) == 0
    assert file.read_text() != before
    assert export(measured, form, *to) == 0
    assert sorted(file.read_text().splitlines()) == sorted(
        before.splitlines()
    )  # entries that were there keep their places


def test_predictions_that_agree_with_what_is_there_are_no_reason_to_keep_it(tmp_path: Path) -> None:
    assert export(tuned(tmp_path / "a"), "module", "-o", str(tmp_path)) == 0
    assert export(tuned(tmp_path / "b", source="predicted"), "module", "--predicted", "-o", str(tmp_path)) == 0


def test_a_file_of_triton_configs_is_merged_by_key(tmp_path: Path) -> None:
    to = ["-o", str(tmp_path / "out")]
    assert export(tuned(tmp_path / "a", times_of={128: TIMES[128], 1000: TIMES[1000]}), "triton", *to) == 0
    assert export(tuned(tmp_path / "b", times_of={1000: {ONE: 2.0, FOUR: 1.0}}), "triton", *to) == 0
    (file,) = (tmp_path / "out").iterdir()
    assert re.findall(r"\((\d+), 100, 'fp16'\): triton.Config\({'ROWS': (\d)}", file.read_text()) == [
        ("128", "1"),
        ("1000", "4"),
    ]
    file.write_text("CONFIGS = make()\n")
    assert export(tuned(tmp_path / "c"), "triton", *to) == EXIT_INPUT
    assert file.read_text() == "CONFIGS = make()\n"


def test_an_export_without_rules_leaves_none_of_an_earlier_one(tmp_path: Path) -> None:
    file = tmp_path / "out" / "sm_90-SOFTMAX_ROWS.json"
    for name, keys in (("rules", BUCKETS), ("none", {})):
        (tmp_path / name).mkdir()
        assert export(tuned(tmp_path / name, **keys), "json", "--unverified", "-o", str(file.parent)) == 0
        assert ("rules" in json.loads(file.read_text())) == (name == "rules")


def test_a_bucket_gets_the_least_total_and_says_so_and_what_was_not_checked_needs_a_flag(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tuned(tmp_path, **BUCKETS)
    file = tmp_path / "out" / "sm_90-SOFTMAX_ROWS.json"
    assert export(path, "json") == 1
    assert "was not checked at rows=1000" in capsys.readouterr().err
    held = json.loads(file.read_text())
    assert held.pop("rules")[0]["keep"] == "next_power_of_2(cols) <= 2048 * num_warps"
    assert held.keys() == {"small", "large"}
    assert export(path, "json", "--predicted") == 0
    assert "checked in the interpreter only" in capsys.readouterr().out
    file.unlink()
    assert export(path, "json", "--unverified") == 0
    held = json.loads(file.read_text())
    assert {key: row["ROWS"] for key, row in held.items() if key != "rules"} == {
        "small": 1, "large": 4, "medium": 4,
    }  # fmt: skip
    said = capsys.readouterr().out
    assert "medium softmax_rows_ROWS4_num_warps4: the least total of 2 cases: 13.00 us, 8.3 %" in said
    assert "not checked" in said


def test_the_key_may_be_another_one_than_the_runs(tmp_path: Path) -> None:
    path = tuned(tmp_path)
    spec = yaml.safe_load((tmp_path / "spec.yaml").read_text())
    (tmp_path / "other.yaml").write_text(yaml.safe_dump({**spec, **BUCKETS}, sort_keys=False))
    assert export(path, "json", "--spec", str(tmp_path / "other.yaml"), "--unverified") == 0
    assert "medium" in json.loads((tmp_path / "out" / "sm_90-SOFTMAX_ROWS.json").read_text())
    (tmp_path / "other.yaml").write_text(yaml.safe_dump({**spec, "grid": ["rows"]}, sort_keys=False))
    assert export(path, "json", "--spec", str(tmp_path / "other.yaml")) == 2


def test_what_is_agreed_is_taken_and_named_and_what_is_interpreted_or_unchecked_needs_a_flag(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tuned(tmp_path, {128: Verified.AGREED, 1000: Verified.INTERPRETED, 4096: Verified.FALSE})
    for flags, left_out in (([], 2), (["--predicted"], 1), (["--predicted", "--unverified"], 0)):
        assert export(path, "triton", *flags) == (1 if left_out else 0)
        told = capsys.readouterr()
        assert told.err.count("left out") == left_out
        assert "128_100_fp16 softmax_rows_ROWS1_num_warps4: compared with other configurations only" in told.out
    text = (tmp_path / "out" / "softmax_rows_configs.py").read_text()
    assert "(128, 100, 'fp16'): triton.Config({'ROWS': 1}, num_warps=4),  # verified: agreed" in text
    assert "# verified: false" in text
    loaded: dict[str, Any] = {}
    exec(text, loaded)
    assert loaded["CONFIGS"][1500, 100, "fp16"].kwargs == {"ROWS": 4}
    assert loaded["CONFIGS"][1500, 100, "fp16"].num_warps == 4


def test_a_kernel_of_another_language_goes_to_json_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "make.py").write_text("def softmax_rows(ROWS, num_warps, dtype): ...\n")
    other = {"language": "cute", "kernel": "make.py:softmax_rows", "args": None, "grid": None, "rules": None}
    path = tuned(tmp_path, **other)
    assert export(path, "json") == 0
    assert len(json.loads((tmp_path / "out" / "sm_90-SOFTMAX_ROWS.json").read_text())) == len(TIMES)
    for to in ("triton", "module"):
        assert export(path, to) == 2
        assert "accepted: json" in capsys.readouterr().err


def test_what_no_kernel_goes_to_and_what_is_gone_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tuned(tmp_path)
    assert export(path, "vllm") == 2
    assert "takes GEMMs" in capsys.readouterr().err
    (tmp_path / "run.json").unlink()
    assert export(path, "json") == 2
    assert "name the spec file by --spec" in capsys.readouterr().err
    assert export(path, "json", "--spec", str(tmp_path / "spec.yaml")) == 0


def test_a_run_from_python_is_said_to_be_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    build = {"build": lambda config: lambda: config["n"], "space": {"n": [1]}}
    gt.callables(**build, reference=lambda: 1, benchmark=lambda call: 1.0, output_dir=tmp_path).tune()
    (folder,) = tmp_path.iterdir()
    assert export(folder / "tuned.yaml", "json") == 2
    assert "was tuned from Python, and has no spec" in capsys.readouterr().err
    assert export(folder / "tuned.yaml", "source") == 0
    said = capsys.readouterr().out
    assert "CONFIG = {'n': 1}\n" in said and "1.00 us; verified: true" in said
    assert export(folder, "json") == 2
    assert "its table is " in capsys.readouterr().err


def test_what_a_key_costs_at_a_case_is_read_from_its_finals(tmp_path: Path) -> None:
    path = tuned(tmp_path)
    (problem, *_) = (row.problem for row in results.read(path).rows)
    assert isinstance(problem, KernelProblem)
    table = tmp_path / "configs" / f"{problem.key}.csv.gz"
    pd.read_csv(table).assign(finals_us=[2.0, 2.5]).to_csv(table, index=False)
    assert key_validation.loss(path, problem, FOUR).pct == 25.0
    assert key_validation.loss(path, problem, ONE).pct == 0.0
    assert key_validation.loss(path, problem, "absent").pct is None

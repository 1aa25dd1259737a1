"""``tune_gemm.py kernel`` without a GPU: compiled, pruned, checked in the interpreter, written."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
import yaml
from command import tune_gemm
from fault_runs import ROOT, statuses_of_run

import gemm_tuner as gt
from gemm_tuner.core.errors import EXIT_INPUT, EXIT_OK, EXIT_UNVERIFIED, EnvironmentFault, UserError
from gemm_tuner.core.records import Verified
from gemm_tuner.store import results

EXAMPLE = ROOT / "examples" / "kernels"


def write_spec(folder: Path) -> None:
    """Of a kernel of which one configuration is wrong and one does not compile; its file also runs a benchmark. A
    parameter is a list of two numbers."""
    source = (EXAMPLE / "softmax.py").read_text()
    assert "    values = values / tl.sum(values, 0)\n" in source
    broken = (
        "        values = values / tl.sum(values, 0) if ROWS != 2 else values\n        tl.static_assert(ROWS != 3)\n"
    )
    source = source.replace("        values = values / tl.sum(values, 0)\n", broken)
    (folder / "softmax.py").write_text(f'{source}\n\nraise SystemExit("a benchmark runs here")\n')
    spec = yaml.safe_load((EXAMPLE / "softmax.yaml").read_text())
    spec |= {
        "cases": {"rows": 5, "cols": 37, "dtype": "fp16"},
        "params": {"TILE": [[2, 1], [3, 1], [4, 1], [8, 2]], "num_warps": [1]},
        "rules": ["TILE[1] == 1"],
        "args": {**spec["args"], "ROWS": "TILE[0]"},
        "derived": {"programs": "cdiv(rows, TILE[0])"},
        "grid": ["programs"],
    }
    (folder / "spec.yaml").write_text(yaml.safe_dump(spec))


def test_a_users_kernel_is_compiled_checked_and_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same from Python finds the finished run."""
    write_spec(tmp_path)
    command = [sys.executable, str(ROOT / "tune_gemm.py"), "kernel", "softmax.py:softmax_rows", "--spec", "spec.yaml"]
    command += ["--arch", "sm_90", "--compare", "all", "-o", "tuned.yaml", "--num_threads", "1"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (row,) = results.read(tmp_path / "tuned.yaml").rows
    assert row.config is not None and row.config.options() == {"TILE": (4, 1), "num_warps": 1}
    assert row.facts["derived"] == {"programs": 2}
    assert row.verified is Verified.INTERPRETED
    (statuses,) = statuses_of_run(next((tmp_path / "results").glob("*-*"))).values()
    assert {name.split("_")[2]: status for name, status in statuses.items()} == {
        "TILE2x1": "wrong", "TILE3x1": "compile_error", "TILE4x1": "ok",
    }  # fmt: skip
    monkeypatch.chdir(tmp_path)
    again = gt.kernel(
        "softmax.py:softmax_rows", spec="spec.yaml", arch="sm_90", compare="all", num_threads=1, output="tuned.yaml"
    )
    assert again.best == {"TILE": (4, 1), "num_warps": 1} and list(again.configs) == ["cols=37 dtype=fp16 rows=5"]
    assert again.folder is not None
    record = json.loads((again.folder / "run.json").read_text())
    assert record["sizes"][0]["total"] == 4 and min(record["stages"][stage] for stage in ("compile", "check")) > 0
    of_first = record["facts"]["kernels compiled"] + record["facts"]["kernels found in the cache"]
    assert of_first == 4, "the measurement's own is one; the second command compiled nothing"
    with pytest.raises(UserError, match="nothing was tuned"):  # the file is that of the run before
        gt.kernel(spec="spec.yaml", arch="sm_90", explain="TILE=4x1", output="tuned.yaml")


def test_configurations_of_a_results_file_are_checked_without_tuning(tmp_path: Path) -> None:
    """A wrong one is found; without the spec, and with another one, a sentence says what is missing."""
    write_spec(tmp_path)
    command = ("kernel", "--spec", "spec.yaml", "--arch", "sm_90", "--num_threads", "1")
    check = (*command, "--gemm_size_file", "tuned.yaml", "--compare_wo_tuning")
    assert tune_gemm(tmp_path, *command, "-o", "tuned.yaml").returncode == EXIT_OK
    done = tune_gemm(tmp_path, *check)
    assert done.returncode == EXIT_OK and "1 of 1 configurations are right" in done.stderr, done.stderr
    tuned = (tmp_path / "tuned.yaml").read_text()
    assert tuned.count("TILE4x1") >= 1 and "TILE:\n  - 4\n  - 1" in tuned
    wrong = tuned.replace("TILE:\n  - 4", "TILE:\n  - 2").replace(
        "name: softmax_rows_TILE4x1", "name: softmax_rows_TILE2x1"
    )
    (tmp_path / "tuned.yaml").write_text(wrong)
    done = tune_gemm(tmp_path, *check)
    assert done.returncode == EXIT_UNVERIFIED and "0 of 1 configurations are right" in done.stderr, done.stderr
    assert "TILE2x1" in done.stdout
    for words, says in {
        ("--gemm_size_file", "tuned.yaml", "--compare_wo_tuning", "--arch", "sm_90"): "read without its spec",
        (*command, "--compare_wo_tuning"): "--gemm_size_file RESULTS.yaml",
        (*command, "--gemm_size_file", "tuned.yaml"): "--compare_wo_tuning",
    }.items():
        done = tune_gemm(tmp_path, *words)
        assert done.returncode == EXIT_INPUT and says in done.stderr, done.stderr
    (tmp_path / "spec.yaml").write_text((tmp_path / "spec.yaml").read_text().replace("rows: 5", "rows: 6"))
    done = tune_gemm(tmp_path, *check)
    assert done.returncode == EXIT_INPUT and "no case of this spec, but of softmax_rows" in done.stderr


@pytest.mark.grid  # tests/pipeline/test_preview.py has them for GEMMs
def test_what_is_wrong_is_raised_in_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the folder's queue.py takes no part."""
    write_spec(tmp_path)
    (tmp_path / "queue.py").write_text("raise SystemExit('this is mine')")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="'ROWS4' is no FIELD=VALUE"):
        gt.kernel(spec="spec.yaml", arch="sm_90", explain="ROWS4,TILE=4x1")
    with pytest.raises(UserError, match="nope"):
        gt.kernel(spec="spec.yaml", arch="sm_90", families=["nope", "softmax_rows"], output="tuned.yaml")


def test_compile_only_says_what_each_configuration_needs_and_runs_nothing(tmp_path: Path) -> None:
    """One does not compile; the reference, which would fail, is never called."""
    source = (EXAMPLE / "softmax.py").read_text()
    broken = source.replace("    values = values /", "    tl.static_assert(ROWS != 2)\n        values = values /")
    assert broken != source
    (tmp_path / "softmax.py").write_text(broken.replace("def reference(", "def other("))
    spec = yaml.safe_load((EXAMPLE / "softmax.yaml").read_text())
    spec |= {"cases": {"rows": 5, "cols": 37, "dtype": "fp16"}, "params": {"ROWS": [1, 2], "num_warps": [1]}}
    del spec["reference"]
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(spec))
    done = tune_gemm(tmp_path, "kernel", "--spec", "spec.yaml", "--compile_only", "--arch", "gfx942")
    assert done.returncode == 0, done.stderr
    rows = {line.split()[0].split("_")[2]: line.split() for line in done.stdout.splitlines() if "ROWS" in line}
    assert rows["ROWS1"][1] == "ok" and int(rows["ROWS1"][2]) > 0
    assert rows["ROWS2"][1] == "compile_error"
    assert (
        not list(tmp_path.glob("results/*/tuned.yaml")) and len(list(tmp_path.glob("results/*/configs/*.csv.gz"))) == 1
    )


def test_a_key_is_not_validated_without_a_gpu_and_nothing_is_tuned_before_that_is_said(tmp_path: Path) -> None:
    write_spec(tmp_path)
    done = tune_gemm(tmp_path, "kernel", "--spec", "spec.yaml", "--validate_key", "2", "-o", "tuned.yaml")
    assert done.returncode == EnvironmentFault.exit_status and "no GPU" in done.stderr
    assert not (tmp_path / "results").exists() and not (tmp_path / "tuned.yaml").exists()


def test_configurations_that_spill_are_kept_after_those_that_do_not(tmp_path: Path) -> None:
    """The user wrote them down; without a GPU all are predicted to be as fast."""
    (tmp_path / "softmax.py").write_text((EXAMPLE / "softmax.py").read_text())
    spec = yaml.safe_load((EXAMPLE / "softmax.yaml").read_text())
    spec |= {"cases": {"rows": 5, "cols": 1000, "dtype": "fp16"}, "rules": []}
    spec["params"] = {"ROWS": [1], "num_warps": [1], "maxnreg": [24, 255]}
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(spec))
    done = tune_gemm(tmp_path, "kernel", "--spec", "spec.yaml", "--arch", "sm_90", "-o", "tuned.yaml")
    assert done.returncode == 0, done.stderr
    (table,) = next((tmp_path / "results").glob("*-*/configs")).glob("*.csv.gz")
    found = pd.read_csv(table).set_index("maxnreg")
    assert found["spills"][24] > 100 > found["spills"][255]
    assert list(found["status"]) == ["ok", "ok"]
    (row,) = results.read(tmp_path / "tuned.yaml").rows
    assert row.config is not None and row.config.options()["maxnreg"] == 255


def test_a_choice_that_was_compared_with_nothing_is_not_counted_as_verified(tmp_path: Path) -> None:
    """Without a reference and with one configuration. The same command again says the same."""
    write_spec(tmp_path)
    spec = yaml.safe_load((tmp_path / "spec.yaml").read_text()) | {"params": {"TILE": [[4, 1]], "num_warps": [1]}}
    del spec["reference"]
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(spec))
    words = ["kernel", "softmax.py:softmax_rows", "--spec", "spec.yaml", "--arch", "sm_90", "-o", "tuned.yaml"]
    for _ in range(2):
        done = tune_gemm(tmp_path, *words, "--num_threads", "1")
        assert done.returncode == EXIT_UNVERIFIED and "0 of 1" in done.stderr, done.stderr
        assert "1 chosen without a check" in done.stderr
    (row,) = results.read(tmp_path / "tuned.yaml").rows
    assert row.verified is Verified.FALSE and "max_abs_error" not in row.facts
    (run,) = (tmp_path / "results").glob("2*")
    shown = tune_gemm(tmp_path, "report", str(run), "--text").stdout
    assert "1 of them not checked" in shown


def test_a_server_is_refused_without_naming_flags_of_gemms(tmp_path: Path) -> None:
    write_spec(tmp_path)
    done = tune_gemm(tmp_path, "kernel", "softmax.py:softmax_rows", "--spec", "spec.yaml", "--serve", "vllm")
    assert done.returncode == EXIT_INPUT and "--serve" in done.stderr and "--dtype" not in done.stderr
    assert len(done.stderr.splitlines()) == 1

"""Users' kernels on the stand-in GPU: what follows from times, from the command to the files."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from fault_runs import ROOT, Machine, with_stand_in_gpu

from gemm_tuner.core.errors import EXIT_UNVERIFIED
from gemm_tuner.core.records import Verified
from gemm_tuner.store import results

EXAMPLE = ROOT / "examples" / "kernels"
SPEC = {
    "cases": {"rows": [100, 900], "cols": 100, "dtype": "fp16"},
    "params": {"ROWS": [1, 2], "num_warps": [1]},
    "key": ["pow2(rows)", "cols"],
}


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    made = with_stand_in_gpu(tmp_path, tmp_path / "cache")
    (tmp_path / "softmax.py").write_text((EXAMPLE / "softmax.py").read_text())
    spec = {**yaml.safe_load((EXAMPLE / "softmax.yaml").read_text()), **SPEC}
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(spec, sort_keys=False))
    made.task = ("kernel", "--spec", "spec.yaml")
    return made


@pytest.mark.grid
def test_a_key_is_validated_at_cases_that_were_not_tuned(machine: Machine) -> None:
    flags = ("--templates", "templates", "--profiler", "nsys", "--search", "full", "--iters", "5")
    done = machine.run(*flags, "-o", "tuned.yaml", "--validate_key", "2")
    assert done.status == 0, done.err
    tuned = results.read(machine.folder / "tuned.yaml")
    assert {row.verified for row in tuned.rows} == {Verified.TRUE}
    validated = results.read(machine.folder / "tuned_validation.yaml")
    known = {row.problem.key for row in tuned.rows}
    assert len(validated.rows) == 2 and not known & {row.problem.key for row in validated.rows}
    assert "the key costs 0.0 % on the mean of 2 cases" in done.out
    assert done.out.count("softmax_rows_ROWS") >= 2


@pytest.mark.grid
def test_a_key_is_validated_where_nothing_is_checked(machine: Machine) -> None:
    spec = yaml.safe_load((machine.folder / "spec.yaml").read_text()) | {"check": {"skip_check": True}}
    (machine.folder / "spec.yaml").write_text(yaml.safe_dump(spec, sort_keys=False))
    flags = ("--templates", "templates", "--profiler", "nsys", "--search", "full", "--iters", "5")
    done = machine.run(*flags, "-o", "tuned.yaml", "--validate_key", "2")
    assert done.status == EXIT_UNVERIFIED, done.err
    assert "the key costs 0.0 % on the mean of 2 cases" in done.out


@pytest.mark.grid
def test_configurations_of_a_results_file_are_timed_without_tuning(machine: Machine) -> None:
    flags = ("--templates", "templates", "--profiler", "nsys", "--iters", "5")
    assert machine.run(*flags, "--search", "full", "-o", "tuned.yaml").status == 0
    done = machine.run(*flags, "--benchmark", "--gemm_size_file", "tuned.yaml", "-o", "again.yaml")
    assert done.status == 0, done.err
    tuned, again = (results.read(machine.folder / name).rows for name in ("tuned.yaml", "again.yaml"))
    assert [(row.problem, row.config) for row in again] == [(row.problem, row.config) for row in tuned]
    assert all(row.facts["median_us"] > 0 and row.verified is Verified.TRUE for row in again)

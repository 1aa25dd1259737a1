"""run.json: what is written reads back, and what is no run is said to be none."""

from __future__ import annotations

from pathlib import Path

import pytest
from samples import problem

from gemm_tuner import run_record
from gemm_tuner.errors import UserError
from gemm_tuner.run_record import Final, RunRecord, SizeRecord

RECORD = RunRecord(
    command=("tune_gemm.py", "-m", "4"),
    seconds=1.5,
    header={"device": "NVIDIA H200", "seed": 0},
    device={"name": "NVIDIA H200", "num_sms": 132},
    stages={"compile": 1.0},
    facts={"kernels compiled": 3},
    sizes=(
        SizeRecord(
            problem(4, 5, 6),
            10,
            ({"rule": "r", "kind": "validity", "why": "w", "cut": 7, "remain": 3},),
            {"pruned": 7, "ok": 3},
            0.5,
            (Final("a", (1.0, 2.0)), Final("torch.mm", (3.0, 4.0))),
            chosen="a",
        ),
        SizeRecord(problem(7, 8, 9), 10, (), {"pruned": 10}, 0.5, failure="no configuration has a time"),
    ),
    results_file="tuned.yaml",
    notes={"noise_pct": 0.4},
)


def test_what_is_written_reads_back(tmp_path: Path) -> None:
    run_record.write(tmp_path, RECORD)
    assert run_record.read(tmp_path) == RECORD


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format_version": 2}', '{"format_version": 1, "sizes": [{}]}'])
def test_what_is_no_run_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(UserError, match="holds no run"):
        run_record.read(tmp_path)


def test_a_missing_table_is_an_error_with_its_path(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="table of 4x5x6"):
        run_record.read_table(tmp_path, "4x5x6_bf16_nn")

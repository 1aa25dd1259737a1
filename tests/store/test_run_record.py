"""run.json: what is written reads back, and what is no run is said to be none."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from samples import problem

from gemm_tuner.core.errors import UserError
from gemm_tuner.store import run_record
from gemm_tuner.store.run_record import Final, RunRecord, SizeRecord

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


def written(tmp_path: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    """The folder of RECORD, with one change to its JSON."""
    path = run_record.write(tmp_path, RECORD)
    row = json.loads(path.read_text())
    change(row)
    path.write_text(json.dumps(row))
    return tmp_path


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda row: row.update(extra=1), "unknown key 'extra'"),
        (lambda row: row.pop("seconds"), "lacks seconds"),
        (lambda row: row.update(seconds="1.5"), "seconds is '1.5'"),
        (lambda row: row.update(seconds=float("nan")), "seconds is nan"),
        (lambda row: row.update(seconds=10**400), "seconds is 1000"),
        (lambda row: row.update(command="tune_gemm.py"), "command is 'tune_gemm.py'"),
        (lambda row: row.update(facts={"kernels": 1.5}), "facts, 'kernels' is 1.5"),
        (lambda row: row.update(results_file=None), "results_file is nothing"),
        (lambda row: row["sizes"][0]["problem"].update(m="../../x"), "m is '../../x'"),
        (lambda row: row["sizes"][0]["problem"].update(k=2**62), "k is 4611686018427387904"),
        (lambda row: row["sizes"][0]["problem"].update(dtype_a="__import__('os')"), "dtype_a is"),
        (lambda row: row["sizes"][0]["problem"].update(alpha=float("inf")), "alpha is inf"),
        (lambda row: row["sizes"][0]["problem"].pop("n"), "lacks m, n or k"),
        (lambda row: row["sizes"][1].update(total=-1), "sizes 2: holds no run that can be read: total is -1"),
        (
            lambda row: row["sizes"][0]["funnel"][0].pop("cut"),
            "sizes 1, funnel 1: holds no run that can be read: lacks cut",
        ),
        (
            lambda row: row["sizes"][0]["finals"][0].update(samples_us=[1.0, -2.0]),
            "samples_us 2 is -2.0; accepted: a finite number above 0",
        ),
        (lambda row: row["sizes"][0]["finals"][0].update(samples_us=[True]), "samples_us 1 is true"),
        (lambda row: row["sizes"][0].update(chosen="\ud800"), "half of a character"),
    ],
)
def test_a_record_with_a_wrong_field_is_refused_by_its_name(
    tmp_path: Path, change: Callable[[dict[str, Any]], object], words: str
) -> None:
    with pytest.raises(UserError) as caught:
        run_record.read(written(tmp_path, change))
    message = caught.value.one_line()
    assert words in message and "run.json" in message and message.isprintable()


def test_a_pipe_a_folder_and_deep_or_doubled_json_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    for text, words in (
        ("[" * 100_000, "nested too deeply"),
        ('{"format_version": 1, "format_version": 1}', "'format_version' is given twice"),
        ("[" + "9" * 5000 + "]", "cannot be read"),
        ("[" + "," * 5_000_000, "too many values"),
        ("\x00", "not whole JSON"),
    ):
        path.write_text(text)
        with pytest.raises(UserError, match=words):
            run_record.read(tmp_path)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(UserError, match="it is a pipe"):
        run_record.read(tmp_path)
    path.unlink()
    path.mkdir()
    with pytest.raises(UserError, match="Is a directory"):
        run_record.read(tmp_path)


def test_a_table_is_looked_for_in_the_runs_folder_only(tmp_path: Path) -> None:
    (tmp_path / "secret.csv.gz").write_bytes(gzip.compress(b"a,b\n1,2\n"))
    for key in ("../secret", "../../x", "/etc/x", "a/b"):
        with pytest.raises(UserError, match="no size's name"):
            run_record.read_table(tmp_path / "run", key)


def test_a_table_that_unpacks_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_record, "MAX_TABLE_BYTES", 1 << 20)
    (tmp_path / "configs").mkdir()
    path = tmp_path / "configs" / "x.csv.gz"
    path.write_bytes(gzip.compress(b"a,b\n" + b"0,0\n" * 1_000_000))
    with pytest.raises(UserError, match="more than 1 MiB when unpacked"):
        run_record.read_table(tmp_path, "x")
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(UserError, match="no table of x"):
        run_record.read_table(tmp_path, "x")

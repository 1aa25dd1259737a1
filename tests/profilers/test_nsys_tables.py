"""Kernels from the tables that nsys exports; made here from the rows of a real report."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from samples import ROOT

from gemm_tuner.profilers import TraceError
from gemm_tuner.profilers.nsys import TABLES_FILE, Nsys, read_file

REPORT = ROOT / "tests/data/h200_nsys_recording/raw/01-finals/start00/trace_cuda_gpu_trace.csv"


def write(folder: Path, rows: list[tuple[str | None, int, int]], *, kernels: bool = True) -> None:
    """rows: name, start and duration in nanoseconds."""
    ids = {name: at for at, name in enumerate(dict.fromkeys(name for name, *_ in rows))}
    with closing(sqlite3.connect(folder / TABLES_FILE)) as database:
        database.execute("CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL)")
        database.executemany("INSERT INTO StringIds VALUES (?, ?)", ((at, name) for name, at in ids.items() if name))
        if kernels:
            columns = "start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER, demangledName INTEGER NOT NULL"
            database.execute(f"CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL ({columns})")
            of = ((start, start + took, ids[name]) for name, start, took in rows)
            database.executemany("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, 0, ?)", of)
        database.commit()


def rows_of(frame: pd.DataFrame) -> list[tuple[str | None, int, int]]:
    columns = frame["kernel_name"], frame["start_ns"].tolist(), frame["duration_ns"].astype(int).tolist()
    return list(zip(*columns, strict=True))


def test_the_tables_hold_what_the_report_does(tmp_path: Path) -> None:
    report = read_file(REPORT)
    write(tmp_path, rows_of(report)[::-1])
    pd.testing.assert_frame_equal(Nsys().read(tmp_path), report)


def test_texts_are_those_of_python_where_pandas_has_its_own(tmp_path: Path) -> None:
    write(tmp_path, [("one", 5, 10), ("two", 20, 10)])
    with pd.option_context("future.infer_string", True):  # as from pandas 3 on
        assert pd.Series(["one"]).dtype != object
        frames = Nsys().read(tmp_path), read_file(REPORT)
    for frame in frames:
        assert {frame[column].dtype for column in ("kernel_name", "scope", "process")} == {np.dtype(object)}


def test_a_report_counts_where_the_export_of_tables_failed(tmp_path: Path) -> None:
    write(tmp_path, [("half of it", 1, 2)])
    (tmp_path / "trace_cuda_gpu_trace.csv").write_bytes(REPORT.read_bytes())
    assert len(Nsys().read(tmp_path)) == len(read_file(REPORT))


@pytest.mark.parametrize(
    ("rows", "kernels", "trouble"),
    [
        ([], False, "empty"),
        ([], True, "empty"),
        ([("one", 5, 10), (None, 20, 10)], True, "unreadable"),
        ([("one", 5, -1)], True, "unreadable"),
        ([("one", 5, 10), ("one", 5, 11)], True, "unreadable"),
    ],
)
def test_tables_without_kernels_or_that_contradict_themselves_are_refused(
    rows: list[tuple[str | None, int, int]], kernels: bool, trouble: str, tmp_path: Path
) -> None:
    write(tmp_path, rows, kernels=kernels)
    with pytest.raises(TraceError, match=TABLES_FILE) as caught:
        Nsys().read(tmp_path)
    assert caught.value.trouble == trouble


def test_what_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / TABLES_FILE).write_text("no database, and longer than the header of one: " * 10)
    with pytest.raises(TraceError, match=TABLES_FILE) as caught:
        Nsys().read(tmp_path)
    assert caught.value.trouble == "unreadable"

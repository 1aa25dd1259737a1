"""Traces of nsys."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from trace_samples import DATA, NSYS, lines_of, refusal, write

from gemm_tuner.profilers import base, nsys, tables
from gemm_tuner.profilers.plain_tables import read_plain


def nsys_rows(*rows: str, unit: str = "ns") -> list[str]:
    return [f"Start ({unit}),Duration ({unit}),GrdX,Name", *rows]


@pytest.mark.parametrize("rows", [NSYS, "nsys_2026.3.1_cuda_gpu_trace.csv"])
def test_a_whole_file_is_read_at_once_as_field_by_field(rows: str) -> None:
    at_once = read_plain(DATA / rows, nsys.IN_NANOSECONDS)
    by_field = base.to_frame(DATA / rows, tables.refuse_repeated(nsys.dispatches(DATA / rows)))
    assert at_once is not None
    pd.testing.assert_frame_equal(at_once, by_field)


@pytest.mark.parametrize(
    "odd",
    ["1,2,8,k,9", "1,2,8", "1,2,8,k", "1,-2,8,k", "1,2,8.5,k", '1,2,8,f<"x">', "1,2,8,7", "1,2,8,none", "==NOTE=="],
)
def test_a_file_with_one_odd_line_is_read_field_by_field(tmp_path: Path, odd: str) -> None:
    rows = nsys_rows("1,2,8,k", '2,2,8,"void f<a, b>"', odd)
    assert read_plain(write(tmp_path, rows[:-1]), nsys.IN_NANOSECONDS) is not None
    assert read_plain(write(tmp_path, rows), nsys.IN_NANOSECONDS) is None


def test_console_output_with_preamble_and_several_reports(tmp_path: Path) -> None:
    preamble = lines_of("nsys_stats_stdout_preamble_cuda_gpu_trace.txt")[:-2]
    sums = lines_of("nsys_2024.6.2_cuda_gpu_kern_sum.csv")
    ranges = lines_of("nsys_2026.3.1_nvtx_pushpop_trace.csv")
    trace = lines_of(NSYS)
    lines = [
        *sums,
        "",
        *preamble[:-1],
        *trace[:5],
        "",
        "Processing [x]...",
        *ranges,
        "",
        trace[0],
        *trace[5:],
    ]
    pd.testing.assert_frame_equal(nsys.read_file(write(tmp_path, lines)), nsys.read_file(DATA / NSYS))


def test_the_preamble_sample_with_grids(tmp_path: Path) -> None:
    text = (DATA / "nsys_stats_stdout_preamble_cuda_gpu_trace.txt").read_text(encoding="utf-8")
    frame = nsys.read_file(write(tmp_path, [text.replace("0,50,1,,", "0,50,1,64,").replace("0,50,2,,", "0,50,2,64,")]))
    assert frame.values.tolist() == [["kernel_a", 100, 50.0, "", ""], ["kernel_b", 200, 50.0, "", ""]]


@pytest.mark.parametrize(
    ("unit", "start", "duration", "start_ns", "duration_ns"),
    [
        ("ns", "1000", "91694", 1000, 91694),
        ("us", "1000.001", "91.694", 1000001, 91694),
        ("ms", "1.5", "0.0917", 1500000, 91700),
        ("sec", "2", "0.0001", 2000000000, 100000),
    ],
)
def test_the_unit_stands_in_the_header(
    tmp_path: Path, unit: str, start: str, duration: str, start_ns: int, duration_ns: float
) -> None:
    frame = nsys.read_file(write(tmp_path, nsys_rows(f"{start},{duration},8,k", unit=unit)))
    assert frame.values.tolist() == [["k", start_ns, duration_ns, "", ""]]


@pytest.mark.parametrize(
    ("unit", "row", "words"),
    [
        ("ns", "1,91.694,8,k", "'91.694'"),
        ("ns", '1,"91,694",8,k', "'91,694'"),
        ("us", '1,"91,694",8,k', "'91,694'"),
        ("ns", "1,-4,8,k", "'-4'"),
        ("ns", "1,None,8,k", "'Duration (ns)' holds ''"),
        ("ns", "1,4,wide,k", "'wide'"),
        ("fortnight", "1,4,8,k", "the unit 'fortnight' of 'Start"),
        ("ns", "1,4,8,7", "'Name' holds '7'"),
        ("ns", "1,4,8", "too few fields"),
        ("ns", "1,4,8,k,9", "do not line up"),
    ],
)
def test_bad_rows_of_nsys(tmp_path: Path, unit: str, row: str, words: str) -> None:
    message = refusal(nsys.read_file, write(tmp_path, nsys_rows(row, unit=unit)))
    assert words in message
    assert "line 2: " in message


def test_quotes_in_a_name_of_nsys(tmp_path: Path) -> None:
    rows = ['1,4,8,"weird "q", name"', '2,5,8,plain"quote', '3,6,8,"f(int, T2)"', "4,7,None,[CUDA memset]"]
    frame = nsys.read_file(write(tmp_path, nsys_rows(*rows)))
    assert list(frame["kernel_name"]) == ['weird "q", name', 'plain"quote', "f(int, T2)"]
    assert list(frame["duration_ns"]) == [4, 5, 6]


def test_a_name_without_its_line_end_may_be_cut(tmp_path: Path) -> None:
    path = write(tmp_path, nsys_rows("1,4,8,gemm_S12", "2,4,8,gemm_S1"), end="")
    assert "the file ends inside the column 'Name'" in refusal(nsys.read_file, path)


def test_a_launch_that_stands_there_twice_is_refused(tmp_path: Path) -> None:
    lines = lines_of(NSYS)
    message = refusal(nsys.read_file, write(tmp_path, [*lines, lines[4]]))
    assert "are those of line 5" in message and f"line {len(lines) + 1}: " in message
    changed = lines[4].split(",")
    changed[1] = "1"
    assert "are those of line 5" in refusal(nsys.read_file, write(tmp_path, [*lines, ",".join(changed)]))


def test_more_kernels_than_any_run_has_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "MAX_ROWS", 2)
    assert len(nsys.read_file(write(tmp_path, nsys_rows("1,4,8,k", "2,4,8,k")))) == 2
    assert "too many kernels" in refusal(nsys.read_file, write(tmp_path, nsys_rows("1,4,8,k", "2,4,8,k", "3,4,8,k")))

"""Traces of rocprof, rocprofv2 and rocprofv3."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
from trace_samples import DATA, READ, V1_LLAMA, V1_MI250, V2, V3, lines_of, refusal, v3_row, write

from gemm_tuner.profilers import TraceError, rocprof, rocprofv3


def test_columns_are_found_by_name_in_any_order(tmp_path: Path) -> None:
    rows = [
        '"Extra","End_Timestamp","Kernel_Name","Kind","Start_Timestamp"',
        '"é, x",250,"a, b","KERNEL_DISPATCH",100',
    ]
    frame = rocprofv3.read_file(write(tmp_path, rows))
    assert frame.values.tolist() == [["a, b", 100, 150.0, "", ""]]


def test_the_header_that_rocpd_writes(tmp_path: Path) -> None:
    header = "Guid,Kind,Agent_Id,Queue_Id,Stream_Id,Thread_Id,Dispatch_Id,Kernel_Id,Kernel_Name,"
    header += "Correlation_Id,Start_Timestamp,End_Timestamp,Lds_Block_Size,Scratch_Size,Vgpr_Count,Duration"
    row = '"00006409-1","KERNEL_DISPATCH","Agent 4",1,0,714789,1,3,"__omp_l23",1,1678314002982197,'
    row += "1678314003082277,8456,0,16,100080"
    frame = rocprofv3.read_file(write(tmp_path, [header, row]))
    assert frame.values.tolist() == [["__omp_l23", 1678314002982197, 100080.0, "", ""]]


def test_the_view_of_a_database_is_refused_with_its_mend(tmp_path: Path) -> None:
    schema = json.loads((DATA / "rocpd_db_extract_gfx1201_llamabench_rocm7.json").read_text())["schema"]
    path = write(tmp_path, [",".join(schema["kernels"]["columns"]), "1"])
    with pytest.raises(TraceError, match="rocpd convert -f csv"):
        rocprofv3.read_file(path)


@pytest.mark.parametrize(
    "name", ['f("x", 1)', 'say "a, 5, 7" twice', '"', 'a", "b', "comma, 1, 2, 3", 'tail"', '"head, 3']
)
def test_unescaped_quotes_in_a_name_do_not_move_the_times(tmp_path: Path, name: str) -> None:
    lines = [
        lines_of(V3)[0],
        v3_row('"before"', 1, 2),
        v3_row(f'"{name}"', 10, 35),
        v3_row('"after"', 40, 41),
    ]
    frame = rocprofv3.read_file(write(tmp_path, lines))
    assert list(frame["duration_ns"]) == [1, 25, 1]
    assert list(frame["kernel_name"]) == ["before", name, "after"]


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (v3_row('"k"', 20, 10), "negative duration"),
        (v3_row('"k"', 20, -30), "'-30'"),
        (v3_row('"k"', "1.5", 10), "'1.5'"),
        (v3_row('"k"', "", 10), "'Start_Timestamp' holds ''"),
        (v3_row('"k"', 20, 2**63), "a whole number"),
        (v3_row('"k"', 20, "9" * 5000), "a whole number"),
        (v3_row('""', 20, 30), "the kernel has no name"),
        (v3_row('"k"', 20, 30).replace("KERNEL_DISPATCH", "MEMORY_COPY"), "'MEMORY_COPY'"),
        (v3_row('"k" x', 20, 30), "do not line up"),
    ],
)
def test_bad_rows_of_rocprofv3(tmp_path: Path, row: str, words: str) -> None:
    message = refusal(rocprofv3.read_file, write(tmp_path, [lines_of(V3)[0], v3_row('"good"', 1, 2), row]))
    assert words in message and "line 3: " in message


def test_a_nul_byte_never_moves_the_times(tmp_path: Path) -> None:
    """Python 3.10 refuses the line, later ones take the byte for a character."""
    path = write(tmp_path, [lines_of(V3)[0], v3_row('"k"', 20, 30).replace("834304", "8\0004")])
    try:
        frame = rocprofv3.read_file(path)
    except TraceError as error:
        assert "line 2" in error.where
    else:
        assert list(frame["duration_ns"]) == [10]


def test_rocprof_refuses_a_duration_that_contradicts_the_times(tmp_path: Path) -> None:
    lines = lines_of(V1_MI250)
    assert lines[1].endswith(",1130883")
    lines[1] = lines[1][:-1]
    message = refusal(rocprof.read_file, write(tmp_path, lines))
    assert "DurationNs is 113088, but EndNs - BeginNs is 1130883" in message and "line 2: " in message


def test_rocprof_without_a_duration_column(tmp_path: Path) -> None:
    """``--timestamp on`` alone: an unquoted header that ends with the times."""
    lines = [line.rsplit(",", 1)[0] for line in lines_of(V1_MI250)]
    frame = rocprof.read_file(write(tmp_path, [lines[0].replace('"', ""), *lines[1:]]))
    pd.testing.assert_frame_equal(frame, rocprof.read_file(DATA / V1_MI250))


def test_rocprof_with_missing_counters(tmp_path: Path) -> None:
    header, *rows = lines_of(V1_MI250)
    lines = [header + ',"SQ_WAVES"', *(row + ",None" for row in rows)]
    assert len(rocprof.read_file(write(tmp_path, lines))) == 19


def test_rocprofv2_with_a_blank_line_under_its_header(tmp_path: Path) -> None:
    header, *rows = lines_of(V2)
    frame = rocprof.read_file(write(tmp_path, [header, "", *rows]))
    pd.testing.assert_frame_equal(frame, rocprof.read_file(DATA / V2))


def test_plugin_version_1_is_refused(tmp_path: Path) -> None:
    """Its header names sig and obj, its rows lack them: 21 columns, 19 fields."""
    header = lines_of(V1_MI250)[0].replace('"', "").removesuffix(",DurationNs")
    row = '0,"k.kd",1,1,0,967084,967084,1048576,256,0,0,4,4,16,64,0,716380685145736,716380685161855,0'
    message = refusal(rocprof.read_file, write(tmp_path, [header, row]))
    assert "--plugin-version 2" in message and "line 2: " in message
    with_counters = [header + ",SQ_WAVES,SQ_BUSY", row + ",1024,5"]
    assert "--plugin-version 2" in refusal(rocprof.read_file, write(tmp_path, with_counters))


@pytest.mark.parametrize("suffix", ["", ".kd", " [clone .kd]", " (.kd)"])
def test_suffixes_of_kernel_names(tmp_path: Path, suffix: str) -> None:
    lines = [lines_of(V3)[0], v3_row(f'"matmul_kernel_0d1d{suffix}"', 1, 3)]
    assert rocprofv3.read_file(write(tmp_path, lines)).loc[0, "kernel_name"] == "matmul_kernel_0d1d"


@pytest.mark.parametrize("name", [V1_MI250, V1_LLAMA, V2, V3])
def test_a_row_that_stands_there_twice_is_refused(tmp_path: Path, name: str) -> None:
    lines = lines_of(name)
    message = refusal(READ[name][0], write(tmp_path, [*lines, lines[2]]))
    assert "are those of line 3" in message and f"line {len(lines) + 1}: " in message


def test_two_kernels_may_begin_at_once_and_one_may_run_twice(tmp_path: Path) -> None:
    rows = [v3_row('"a"', 10, 20), v3_row('"b"', 10, 20), v3_row('"a"', 20, 30)]
    assert list(rocprofv3.read_file(write(tmp_path, [lines_of(V3)[0], *rows]))["kernel_name"]) == ["a", "b", "a"]


def test_rocprof_says_which_process_ran_a_kernel(tmp_path: Path) -> None:
    header = "Index,KernelName,pid,BeginNs,EndNs,DurationNs"
    rows = ['0,"k.kd",967,10,20,10', '1,"k.kd",968,10,25,15']
    assert list(rocprof.read_file(write(tmp_path, [header, *rows]))["process"]) == ["967", "968"]
    assert "'pid' holds 'x'" in refusal(rocprof.read_file, write(tmp_path, [header, rows[0].replace("967", "x")]))
    assert set(rocprof.read_file(DATA / V2)["process"]) != {""}


def test_a_line_without_an_end_is_not_read_to_it(tmp_path: Path) -> None:
    path = write(tmp_path, [lines_of(V3)[0], v3_row('"' + "k" * 2**21 + '"', 10, 20)])
    message = refusal(rocprofv3.read_file, path)
    assert "line 2: the line is too long" in message and len(message) < 500


def test_a_field_beyond_what_csv_takes_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, [lines_of(V3)[0], v3_row('"' + "k" * 200_000 + '"', 10, 20).replace('"KERNEL', 'x"KERNEL')])
    assert "line 2: " in refusal(rocprofv3.read_file, path)

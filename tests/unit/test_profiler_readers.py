"""Every profiler sample is read to exact values or refused with the right words; so are broken copies."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from gemm_tuner.errors import EXIT_ENVIRONMENT
from gemm_tuner.profilers import PROFILERS, TRACE_COLUMNS, TraceError, ncu, nsys, proton, rocprof, rocprofv3
from gemm_tuner.profilers.tables import normalise

DATA = Path(__file__).resolve().parents[1] / "data" / "profilers"
Reader = Callable[[Path], pd.DataFrame]

ADD_CONST = "addConstDouble(int, double *, double, double *)"
ADDITION = "void addition_kernel<float>(float*, float const*, float const*, int, int)"
MATMUL_2022 = "matmul_kernel_BM128_BN128_BK32_GM4_SK1_nW4_nS2"
SAXPY = "vernier::bench::demo::<unnamed>::saxpyKernel(float, const float *, float *, unsigned long)"
DERIVED = "DERIVED_rocprofv3_kernel_trace_h4_from_json_gfx950_triton_attn.csv"
V1_LLAMA = "rocprofv1_stats_results_gfx1201_llamacpp.csv"
V1_MI250 = "rocprofv1_stats_results_mi250_finitediff.csv"
V2 = "rocprofv2_fileplugin2_omniperf_MI300X.csv"
V3 = "rocprofv3_kernel_trace_h4_docs_rocm7.0.csv"
NSYS = "nsys_2023.4.4_cuda_gpu_trace_h200_triton_matmul.csv"
NCU_DETAILS, NCU_RAW = "ncu_2025.3.1_metrics_h200_triton_matmul.csv", "ncu_2022.3_import_raw_units_base.csv"

# file: reader, rows, then one row: its index, kernel, start_ns, duration_ns
READ: dict[str, tuple[Reader, int, int, str, int, float]] = {
    V1_LLAMA: (rocprof.read_file, 39, 0, "__amd_rocclr_fillBufferAligned", 769537350099688, 7600),
    V1_MI250: (
        rocprof.read_file,
        19,
        0,
        "void test_function_kernel<double>(double*, int, int, int, double, double, double)",
        1915914098849134,
        1130883,
    ),
    V2: (rocprof.read_file, 3, 1, "vecCopy(double*, double*, double*, int, int)", 716380685184013, 13560),
    "rocprofv3_kernel_trace_h1_docs_2024-07.csv": (
        rocprofv3.read_file,
        1,
        0,
        "matrixTranspose(float*, float*, int)",
        671599758568,
        66760,
    ),
    "rocprofv3_kernel_trace_h3_docs_2025-04_streamid.csv": (
        rocprofv3.read_file,
        9,
        0,
        ADDITION,
        1057678125279112,
        9800,
    ),
    V3: (rocprofv3.read_file, 9, 0, ADDITION, 1550151853029637, 12800),
    "rocprofv3_kernel_trace_h4_truncate_docs_rocm7.0.csv": (
        rocprofv3.read_file,
        4,
        3,
        "divide_kernel",
        1552082594696598,
        13080,
    ),
    DERIVED: (rocprofv3.read_file, 36, 0, "__amd_rocclr_copyBuffer", 63857982592000, 2840),
    NSYS: (nsys.read_file, 12, 2, "matmul_kernel", 3742175639, 29152),
    "nsys_2026.3.1_cuda_gpu_trace.csv": (nsys.read_file, 4, 3, SAXPY, 1502812848, 6592),
    "SYNTHDB_nsys_2022.4.2_gputrace.csv": (nsys.read_file, 12, 0, MATMUL_2022, 1000000000, 91694),
    NCU_DETAILS: (ncu.read_file, 10, 9, "matmul_kernel", 9, 30688),
    "ncu_2022.3_import_details_default.csv": (ncu.read_file, 1, 0, ADD_CONST, 0, 239010),
    "ncu_2022.3_import_details_metrics_base.csv": (ncu.read_file, 1, 0, ADD_CONST, 0, 239008),
    "ncu_2022.3_import_raw_units_auto.csv": (ncu.read_file, 1, 0, ADD_CONST, 0, 239008),
    NCU_RAW: (ncu.read_file, 1, 0, ADD_CONST, 0, 239008),
    "ncu_2022.3_import_raw_base_LOCALE_en_US.csv": (ncu.read_file, 1, 0, ADD_CONST, 0, 239008),
    "ncu_2022.3_import_details_base_LOCALE_en_US.csv": (ncu.read_file, 1, 0, ADD_CONST, 0, 239008),
    "ncu_csv_metrics_excerpt_sm121.txt": (ncu.read_file, 3, 2, "saxpy", 2, 1205000),
    "ncu_csv_metrics_kerneltime_col_2024.txt": (
        ncu.read_file,
        1,
        0,
        "ampere_h16816gemm_256x128_ldg8_stages_32x3_tn",
        0,
        152192,
    ),
    "proton_triton3.6_h200_triton_matmul.json": (proton.read_file, 20, 10, "matmul_kernel", 10, 29187.2),
    "proton_hatchet_hip_gfx942_add_kernel.json": (proton.read_file, 1, 0, "add_kernel", 0, 3925),
    "proton_hatchet_cuda_launch_metadata_scope.json": (proton.read_file, 1, 0, "triton_kernel", 0, 1664),
}

# file: reader, line (None where the message names none), words of the message
REFUSED: dict[str, tuple[Reader, int | None, str]] = {
    "rocprofv1_stats_results.stats_gfx1201_llamacpp.csv": (
        rocprof.read_file,
        1,
        "use X.csv, not X.stats.csv",
    ),
    "rocprofv1_stats_results.stats_mi250_finitediff.csv": (
        rocprof.read_file,
        1,
        "use X.csv, not X.stats.csv",
    ),
    "rocprofv1_pmc_gfx950_aiter_nostats.csv": (rocprof.read_file, 1, "run rocprof with --stats"),
    "rocprofv1_timestamp_omniperf_renamed_MI200.csv": (rocprof.read_file, 1, "omniperf renames"),
    "rocprofv1_legacy_rocm4.3_fbar_NOHEADER.csv": (rocprof.read_file, 1, "the header line is missing"),
    "rocprofv3_counter_collection_docs_rocm7.0.csv": (rocprofv3.read_file, 1, "these are counters"),
    "rocprofv3_hip_api_stats_docs_rocm7.0.csv": (rocprofv3.read_file, 1, "use *_kernel_trace.csv"),
    "rocprofv3_kernel_stats_pytorch_mi.csv": (rocprofv3.read_file, 1, "use *_kernel_trace.csv"),
    "rocprofv3_results_json_trimmed_gfx950_triton_attn.json": (
        rocprofv3.read_file,
        1,
        "another tool wrote the file",
    ),
    "rocpd_db_extract_gfx1201_llamabench_rocm7.json": (rocprofv3.read_file, 1, "another tool wrote the file"),
    "nsys_2024.6.2_cuda_gpu_kern_sum.csv": (nsys.read_file, 1, "use the report cuda_gpu_trace"),
    "SYNTHDB_nsys_2022.4.2_gpukernsum.csv": (nsys.read_file, 1, "a sum over launches"),
    "SYNTHDB_nsys_2022.4.2_gpukernsum_base.csv": (nsys.read_file, 1, "a sum over launches"),
    "nsys_2026.3.1_nvtx_pushpop_trace.csv": (nsys.read_file, 1, "NVTX ranges"),
    "nsys_stats_stdout_preamble_cuda_gpu_trace.txt": (nsys.read_file, None, "no kernels recorded"),
    "ncu_2022.3_import_raw_base_LOCALE_de_DE.csv": (
        ncu.read_file,
        3,
        "'239.008' nsecond may have been written",
    ),
    "ncu_2022.3_import_details_base_LOCALE_de_DE.csv": (
        ncu.read_file,
        7,
        "'239.008' nsecond may have been written",
    ),
    "ncu_2022.3_import_raw_TEXT.txt": (ncu.read_file, 1, "no line of the file is a header"),
}

CSV_READ = {name: row for name, row in READ.items() if row[0] is not proton.read_file}


def lines_of(name: str) -> list[str]:
    return (DATA / name).read_text(encoding="utf-8").splitlines()


def write(tmp_path: Path, lines: list[str], end: str = "\n") -> Path:
    path = tmp_path / "copy.csv"
    path.write_text("\n".join(lines) + end, encoding="utf-8")
    return path


def refusal(reader: Reader, path: Path, trouble: str = "unreadable") -> str:
    with pytest.raises(TraceError) as caught:
        reader(path)
    error = caught.value
    assert error.trouble == trouble
    assert error.exit_status == EXIT_ENVIRONMENT
    assert str(path) in error.where
    return error.one_line()


def test_every_sample_has_an_expectation() -> None:
    assert {path.name for path in DATA.iterdir()} - {"README.md"} == READ.keys() | REFUSED.keys()


@pytest.mark.parametrize("name", sorted(READ))
def test_sample_is_read(name: str) -> None:
    reader, rows, index, kernel, start_ns, duration_ns = READ[name]
    frame = reader(DATA / name)
    assert len(frame) == rows
    assert frame.loc[index, "kernel_name"] == kernel
    assert frame.loc[index, "start_ns"] == start_ns
    assert frame.loc[index, "duration_ns"] == pytest.approx(duration_ns, rel=1e-12)


@pytest.mark.parametrize("name", sorted(READ))
def test_every_frame_has_the_same_form(name: str) -> None:
    frame = READ[name][0](DATA / name)
    assert tuple(frame.columns) == TRACE_COLUMNS
    assert frame["start_ns"].dtype == "int64" and frame["duration_ns"].dtype == "float64"
    assert all(type(value) is str for column in ("kernel_name", "scope") for value in frame[column])
    assert frame["start_ns"].is_monotonic_increasing
    assert list(frame.index) == list(range(len(frame)))
    assert not frame["kernel_name"].str.contains(r"\.kd").any()
    assert (frame["duration_ns"] > 0).all() and (frame["scope"] == "").all()


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_sample_is_refused(name: str) -> None:
    reader, line, words = REFUSED[name]
    message = refusal(reader, DATA / name, "empty" if words == "no kernels recorded" else "unreadable")
    assert words in message
    assert line is None or f"{name}, line {line}: " in message


def test_sums_over_whole_files() -> None:
    """A row dropped or doubled anywhere would change these."""
    assert nsys.read_file(DATA / NSYS)["duration_ns"].sum() == 317439
    assert ncu.read_file(DATA / NCU_DETAILS)["duration_ns"].sum() == 303648
    assert rocprof.read_file(DATA / V1_LLAMA)["duration_ns"].sum() == 3793938
    assert rocprofv3.read_file(DATA / V3)["duration_ns"].sum() == 96160
    total = proton.read_file(DATA / "proton_triton3.6_h200_triton_matmul.json")["duration_ns"].sum()
    assert total == pytest.approx(14944 + 39136 + 1535 + 10304 + 25888 + 291872 + 24288)


def test_copies_are_not_kernels() -> None:
    frame = nsys.read_file(DATA / "nsys_2026.3.1_cuda_gpu_trace.csv")
    assert set(frame["kernel_name"]) == {SAXPY}


@pytest.mark.parametrize("name", sorted(CSV_READ))
@pytest.mark.parametrize("form", ["bom", "crlf", "banner"])
def test_bom_crlf_and_banner_change_nothing(tmp_path: Path, name: str, form: str) -> None:
    reader, original = CSV_READ[name][0], (DATA / name).read_bytes()
    changed = {
        "bom": b"\xef\xbb\xbf" + original,
        "crlf": original.replace(b"\n", b"\r\n"),
        "banner": b"RPL: on 'today', profiling \"x\"\n\n==PROF== Connected\nlist, of, things\n" + original,
    }[form]
    path = tmp_path / "copy.csv"
    path.write_bytes(changed)
    pd.testing.assert_frame_equal(reader(path), reader(DATA / name))


@pytest.mark.parametrize("name", [V1_MI250, V2, V3, NSYS])
def test_rows_come_out_in_time_order(tmp_path: Path, name: str) -> None:
    header, *rows = lines_of(name)
    reader = READ[name][0]
    pd.testing.assert_frame_equal(reader(write(tmp_path, [header, *reversed(rows)])), reader(DATA / name))


def test_equal_start_times_keep_the_order_of_the_file(tmp_path: Path) -> None:
    header = lines_of(V3)[0]
    rows = [v3_row(f'"k{index}"', index % 2, 9) for index in range(400)]
    names = list(rocprofv3.read_file(write(tmp_path, [header, *rows]))["kernel_name"])
    assert names == [f"k{index}" for index in (*range(0, 400, 2), *range(1, 400, 2))]


@pytest.mark.parametrize("name", sorted(CSV_READ))
def test_a_cut_last_line_never_gives_a_wrong_number(tmp_path: Path, name: str) -> None:
    """Cut anywhere inside the last line, the file is refused with that line's number or reads as before."""
    reader, text = CSV_READ[name][0], (DATA / name).read_text(encoding="utf-8")
    whole, count = reader(DATA / name), len(text.splitlines())
    start = text.rstrip("\n").rfind("\n") + 1
    path = tmp_path / "copy.csv"
    refused = 0
    for end in range(start + 1, len(text)):
        path.write_text(text[:end], encoding="utf-8")
        try:
            frame = reader(path)
        except TraceError as error:
            refused += 1
            assert f"line {count}" in error.where or error.trouble == "empty"
        else:
            pd.testing.assert_frame_equal(frame, whole)
    assert refused > 20


@pytest.mark.parametrize("name", [V1_MI250, V2, V3, NSYS, NCU_RAW])
@pytest.mark.parametrize("shift", ["one more", "one less"])
def test_a_shifted_row_is_refused(tmp_path: Path, name: str, shift: str) -> None:
    lines = lines_of(name)
    lines[-1] = f'"x",{lines[-1]}' if shift == "one more" else lines[-1].split(",", 1)[1]
    message = refusal(READ[name][0], write(tmp_path, lines))
    assert f"line {len(lines)}: " in message


@pytest.mark.parametrize("name", [V1_MI250, V2, V3, NSYS, NCU_RAW, NCU_DETAILS])
@pytest.mark.parametrize("filler", ["0", "text"])
def test_fields_shifted_within_the_width_are_refused(tmp_path: Path, name: str, filler: str) -> None:
    """The first field is lost and one more stands at the end, so the row has the right width."""
    lines = lines_of(name)
    if name == NCU_DETAILS:
        del lines[-2:]  # so that the last row is one of the wanted metric
    lines[-1] = lines[-1].split(",", 1)[1] + f',"{filler}"'
    assert f"line {len(lines)}: " in refusal(READ[name][0], write(tmp_path, lines))


@pytest.mark.parametrize("reader", [nsys.read_file, ncu.read_file, proton.read_file, rocprof.read_file])
@pytest.mark.parametrize("content", [b"", b"\n\n", b"\xef\xbb\xbf"])
def test_an_empty_file_means_no_kernels(tmp_path: Path, reader: Reader, content: bytes) -> None:
    path = tmp_path / "empty"
    path.write_bytes(content)
    assert "no kernels recorded" in refusal(reader, path, "empty")


@pytest.mark.parametrize("name", [V1_MI250, V2, V3, NSYS, NCU_RAW])
def test_a_header_alone_means_no_kernels(tmp_path: Path, name: str) -> None:
    assert "no kernels recorded" in refusal(READ[name][0], write(tmp_path, lines_of(name)[:1]), "empty")


@pytest.mark.parametrize("profiler", PROFILERS, ids=lambda profiler: profiler.name)
def test_a_missing_file_is_said_to_be_missing(tmp_path: Path, profiler: Any) -> None:
    if not any(profiler.supports(backend) for backend in ("cuda", "hip")):
        pytest.skip("not a profiler of a GPU")
    with pytest.raises(TraceError, match="wrote no such file") as caught:
        profiler.read(tmp_path)
    assert caught.value.trouble == "missing"
    assert str(tmp_path) in caught.value.where


@pytest.mark.parametrize(
    ("title", "expected"),
    [
        ("Duration (ns)", ("duration", "ns")),
        ("Kernel_Name", ("kernelname", "")),
        (" Kernel Name ", ("kernelname", "")),
        ("gpu-id", ("gpuid", "")),
        ("Throughput (MB/s)", ("throughput", "MB/s")),
        ("LDS_Block_Size", ("ldsblocksize", "")),
        ("Lds_Block_Size", ("ldsblocksize", "")),
    ],
)
def test_normalised_titles(title: str, expected: tuple[str, str]) -> None:
    assert normalise(title) == expected


# rocprofv3 and rocprof

V3_AFTER = "0,0,8,0,16,64,1,1,1024,1024,1"


def v3_row(name: str, start_ns: int | str, end_ns: int | str) -> str:
    return f'"KERNEL_DISPATCH","Agent 4",1,1,834304,1,10,{name},1,{start_ns},{end_ns},{V3_AFTER}'


def test_columns_are_found_by_name_in_any_order(tmp_path: Path) -> None:
    rows = [
        '"Extra","End_Timestamp","Kernel_Name","Kind","Start_Timestamp"',
        '"é, x",250,"a, b","KERNEL_DISPATCH",100',
    ]
    frame = rocprofv3.read_file(write(tmp_path, rows))
    assert frame.values.tolist() == [["a, b", 100, 150.0, ""]]


def test_the_header_that_rocpd_writes(tmp_path: Path) -> None:
    header = "Guid,Kind,Agent_Id,Queue_Id,Stream_Id,Thread_Id,Dispatch_Id,Kernel_Id,Kernel_Name,"
    header += "Correlation_Id,Start_Timestamp,End_Timestamp,Lds_Block_Size,Scratch_Size,Vgpr_Count,Duration"
    row = '"00006409-1","KERNEL_DISPATCH","Agent 4",1,0,714789,1,3,"__omp_l23",1,1678314002982197,'
    row += "1678314003082277,8456,0,16,100080"
    frame = rocprofv3.read_file(write(tmp_path, [header, row]))
    assert frame.values.tolist() == [["__omp_l23", 1678314002982197, 100080.0, ""]]


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


# nsys


def nsys_rows(*rows: str, unit: str = "ns") -> list[str]:
    return [f"Start ({unit}),Duration ({unit}),GrdX,Name", *rows]


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
    assert frame.values.tolist() == [["kernel_a", 100, 50.0, ""], ["kernel_b", 200, 50.0, ""]]


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
    assert frame.values.tolist() == [["k", start_ns, duration_ns, ""]]


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


# ncu


def ncu_details(value: str, unit: str, metric: str = "gpu__time_duration.sum", launch: int = 0) -> str:
    return f'"{launch}","607","k","(256, 1, 1)","{metric}","{unit}","{value}"'


NCU_HEADER = '"ID","Process ID","Kernel Name","Block Size","Metric Name","Metric Unit","Metric Value"'


@pytest.mark.parametrize(
    ("value", "unit", "duration_ns"),
    [
        ("239008", "nsecond", 239008),
        ("30,816", "ns", 30816),
        ("1,230,816", "ns", 1230816),
        ("512", "ns", 512),
        ("512.00", "ns", 512),
        ("239.01", "usecond", 239010),
        ("239.008000", "usecond", 239008),
        ("1,205.00", "us", 1205000),
        ("0.125", "ms", 125000),
        ("1.25", "msecond", 1250000),
        ("2.00", "s", 2e9),
        ("1234.567", "us", 1234567),
    ],
)
def test_durations_of_ncu(tmp_path: Path, value: str, unit: str, duration_ns: float) -> None:
    frame = ncu.read_file(write(tmp_path, [NCU_HEADER, ncu_details(value, unit)]))
    assert frame.values.tolist() == [["k", 0, duration_ns, ""]]


@pytest.mark.parametrize(
    ("value", "unit"),
    [
        ("239.008", "nsecond"),
        ("239.008", "us"),
        ("1.239.008", "ns"),
        ("239,008", "us"),
        ("239,01", "usecond"),
        ("239,008000", "usecond"),
        ("1.205,00", "us"),
        ("0,125", "ns"),
        ("2,39,008", "ns"),
        ("1,23,456", "ns"),
    ],
)
def test_durations_that_two_locales_read_differently(tmp_path: Path, value: str, unit: str) -> None:
    message = refusal(ncu.read_file, write(tmp_path, [NCU_HEADER, ncu_details(value, unit)]))
    assert "another locale" in message and "LC_ALL=C" in message and "line 2: " in message


@pytest.mark.parametrize(
    ("value", "unit", "words"),
    [
        ("n/a", "ns", "is not a number"),
        ("", "ns", "is not a number"),
        ("-5", "ns", "is not a number"),
        ("1e3", "ns", "is not a number"),
        ("²", "ns", "is not a number"),
        ("5", "cycle", "the unit 'cycle'"),
        ("5", "", "the unit ''"),
    ],
)
def test_durations_that_are_none(tmp_path: Path, value: str, unit: str, words: str) -> None:
    assert words in refusal(ncu.read_file, write(tmp_path, [NCU_HEADER, ncu_details(value, unit)]))


def test_the_raw_page_needs_its_units_row(tmp_path: Path) -> None:
    lines = lines_of(NCU_RAW)
    message = refusal(ncu.read_file, write(tmp_path, [lines[0], lines[2]]))
    assert "the unit ''" in message and "line 2: " in message


def test_several_tables_each_with_its_own_units(tmp_path: Path) -> None:
    lines = lines_of(NCU_RAW) + lines_of("ncu_2022.3_import_raw_units_auto.csv") + ["", *lines_of(NCU_DETAILS)]
    frame = ncu.read_file(write(tmp_path, lines))
    assert len(frame) == 12
    assert list(frame["duration_ns"][:3]) == [239008, 239008, 30816]


def test_the_exact_metric_wins_over_its_label(tmp_path: Path) -> None:
    label, exact = ncu_details("30.82", "us", "Duration"), ncu_details("30,816", "ns")
    for rows in ([label, exact], [exact, label]):
        frame = ncu.read_file(write(tmp_path, [NCU_HEADER, *rows]))
        assert list(frame["duration_ns"]) == [30816]
    assert "listed twice" in refusal(ncu.read_file, write(tmp_path, [NCU_HEADER, exact, exact.replace("816", "817")]))


def test_launches_are_ordered_by_number_and_not_as_text(tmp_path: Path) -> None:
    rows = [ncu_details(str(100 + launch), "ns", launch=launch) for launch in (10, 9, 2)]
    assert list(ncu.read_file(write(tmp_path, [NCU_HEADER, *rows]))["start_ns"]) == [2, 9, 10]


def test_ncu_that_profiled_nothing(tmp_path: Path) -> None:
    path = write(tmp_path, ["==PROF== Connected to process 1", "==WARNING== No kernels were profiled."])
    assert "no kernels recorded" in refusal(ncu.read_file, path, "empty")


def test_what_ncu_says_itself_is_passed_on(tmp_path: Path) -> None:
    path = write(tmp_path, ["==PROF== Connected to process 1", "==ERROR== ERR_NVGPUCTRPERM - no permission"])
    assert "ERR_NVGPUCTRPERM" in refusal(ncu.read_file, path)


def test_ncu_without_the_metric(tmp_path: Path) -> None:
    lines = [line for line in lines_of(NCU_DETAILS) if "gpu__time" not in line]
    assert "no gpu__time_duration.sum" in refusal(ncu.read_file, write(tmp_path, lines))
    raw = [line.replace("gpu__time_duration.sum", "other") for line in lines_of(NCU_RAW)]
    assert "no gpu__time_duration.sum" in refusal(ncu.read_file, write(tmp_path, raw))


# proton


def node(name: str, *children: dict[str, Any], count: Any = None, time_ns: Any = None) -> dict[str, Any]:
    metrics = {} if count is None else {"count": count, "time (ns)": time_ns}
    return {"frame": {"name": name, "type": "function"}, "metrics": metrics, "children": list(children)}


def write_tree(tmp_path: Path, *children: dict[str, Any]) -> Path:
    path = tmp_path / "trace.hatchet"
    path.write_text("\n" + json.dumps([node("ROOT", *children, count=0, time_ns=0), {"CUDA": {}}]))
    return path


def test_scopes_order_the_rows_by_their_number(tmp_path: Path) -> None:
    path = write_tree(
        tmp_path,
        node("L10", node("gemm", count=1, time_ns=50)),
        node("fill", count=1, time_ns=7),
        node("L9", node("gemm", count=2, time_ns=80), node("reduce", count=1, time_ns=5)),
        node("warm-up", node("gemm", count=1, time_ns=99)),
        node("L11"),
    )
    assert proton.read_file(path).values.tolist() == [
        ["fill", 0, 7.0, ""],
        ["gemm", 1, 99.0, ""],
        ["gemm", 2, 40.0, "L9"],
        ["gemm", 3, 40.0, "L9"],
        ["reduce", 4, 5.0, "L9"],
        ["gemm", 5, 50.0, "L10"],
    ]


def test_kernels_of_launch_metadata_are_left_out_inside_a_scope(tmp_path: Path) -> None:
    metadata = node("__proton_launch_metadata", node("deep", node("helper", count=1, time_ns=3)))
    frame = proton.read_file(write_tree(tmp_path, node("L1", metadata, node("gemm", count=1, time_ns=5))))
    assert frame.values.tolist() == [["gemm", 0, 5.0, "L1"]]


@pytest.mark.parametrize("name", ["L", "L1x", "xL1", "l1", "L 1", "L1\n"])
def test_other_scopes_are_not_ours(tmp_path: Path, name: str) -> None:
    frame = proton.read_file(write_tree(tmp_path, node(name, node("gemm", count=1, time_ns=5))))
    assert list(frame["scope"]) == [""]


def test_a_deep_tree_is_walked_without_recursion(tmp_path: Path) -> None:
    tree = node("gemm", count=1, time_ns=5)
    for depth in range(150):
        tree = node(f"frame{depth}", tree)
    assert list(proton.read_file(write_tree(tmp_path, node("L3", tree)))["scope"]) == ["L3"]


def test_a_tree_without_kernels(tmp_path: Path) -> None:
    assert "no kernels recorded" in refusal(proton.read_file, write_tree(tmp_path, node("L1")), "empty")


@pytest.mark.parametrize(
    ("child", "words"),
    [
        (node("gemm", count=1, time_ns=-5), "in -5 ns"),
        (node("gemm", count=1, time_ns="5"), "in '5' ns"),
        (node("gemm", count=1.5, time_ns=5), "ran 1.5 times"),
        (node("gemm", count=1, time_ns=float("nan")), "in nan ns"),
        (node("gemm", node("inner", count=1, time_ns=5), count=1, time_ns=5), "both a time and children"),
        ({"frame": {}, "metrics": {}, "children": []}, "not a proton tree"),
        ({"frame": {"name": "x"}, "metrics": [], "children": []}, "not a proton tree"),
    ],
)
def test_bad_trees(tmp_path: Path, child: dict[str, Any], words: str) -> None:
    assert words in refusal(proton.read_file, write_tree(tmp_path, child))


@pytest.mark.parametrize("text", ["[]", "{}", "[1]", "null", '[{"frame": null}]'])
def test_json_that_is_no_tree(tmp_path: Path, text: str) -> None:
    path = tmp_path / "trace.hatchet"
    path.write_text(text)
    assert "not a proton tree" in refusal(proton.read_file, path)


def test_a_cut_tree_names_the_line(tmp_path: Path) -> None:
    text = (DATA / "proton_triton3.6_h200_triton_matmul.json").read_text(encoding="utf-8")
    path = tmp_path / "trace.hatchet"
    path.write_text(text[: len(text) // 2])
    assert re.search(r"line \d+: the file is not whole JSON", refusal(proton.read_file, path))

"""Every profiler sample is read to exact values or refused with the right words; so are broken copies."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from trace_samples import (
    CSV_READ,
    DATA,
    NCU_DETAILS,
    NCU_RAW,
    NSYS,
    READ,
    REFUSED,
    SAXPY,
    V1_LLAMA,
    V1_MI250,
    V2,
    V3,
    Reader,
    lines_of,
    refusal,
    v3_row,
    write,
)

from gemm_tuner.profilers import PROFILERS, TRACE_COLUMNS, TraceError, ncu, nsys, proton, rocprof, rocprofv3
from gemm_tuner.profilers.tables import normalise


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
    reader = READ[name][0]
    frame = reader(DATA / name)
    assert tuple(frame.columns) == TRACE_COLUMNS
    assert frame["start_ns"].dtype == "int64" and frame["duration_ns"].dtype == "float64"
    assert all(type(value) is str for column in ("kernel_name", "scope") for value in frame[column])
    assert frame["start_ns"].is_monotonic_increasing
    assert list(frame.index) == list(range(len(frame)))
    assert not frame["kernel_name"].str.contains(r"\.kd").any()
    assert (frame["duration_ns"] > 0).all()
    assert reader is proton.read_file or (frame["scope"] == "").all()


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
    assert total == pytest.approx(41567)


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
    every = 1 if "FUZZ_EXAMPLES" in os.environ else 5  # with ``make test-all``, at each character
    for end in range(start + 1, len(text), every):
        path.write_text(text[:end], encoding="utf-8")
        try:
            frame = reader(path)
        except TraceError as error:
            refused += 1
            assert f"line {count}" in error.where or error.trouble == "empty"
        else:
            pd.testing.assert_frame_equal(frame, whole)
    assert refused > 20 // every


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


@pytest.mark.parametrize("name", [V1_MI250, V2, V3, NSYS, NCU_RAW])
def test_a_message_shows_little_of_a_long_field(tmp_path: Path, name: str) -> None:
    """A field in which 5000 digits stood was printed whole."""
    lines = lines_of(name)
    fields = lines[-1].split(",")
    for index in range(len(fields)):
        spoilt = ",".join([*fields[:index], "9" * 5000, *fields[index + 1 :]])
        try:
            READ[name][0](write(tmp_path, [*lines[:-1], spoilt]))
        except TraceError as error:
            assert len(error.one_line()) < 1000

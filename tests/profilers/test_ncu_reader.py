"""Traces of ncu: durations, units, locales, repeated launches."""

from __future__ import annotations

from pathlib import Path

import pytest
from trace_samples import NCU_DETAILS, NCU_RAW, lines_of, refusal, write

from gemm_tuner.profilers import ncu


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
    assert frame.values.tolist() == [["k", 0, duration_ns, "", "607"]]


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


def test_launches_of_two_processes_are_kept_apart(tmp_path: Path) -> None:
    """Each process counts its launches from 0."""
    rows = [ncu_details("100", "ns", launch=0), ncu_details("200", "ns", launch=0).replace('"607"', '"608"')]
    frame = ncu.read_file(write(tmp_path, [NCU_HEADER, *rows]))
    assert frame[["process", "duration_ns"]].values.tolist() == [["607", 100.0], ["608", 200.0]]


def test_a_launch_listed_twice_alike_counts_once(tmp_path: Path) -> None:
    row = ncu_details("100", "ns")
    assert len(ncu.read_file(write(tmp_path, [NCU_HEADER, row, row]))) == 1

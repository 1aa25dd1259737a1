"""Spoilt copies of every profiler's real files: refused, or read to rows that the whole file has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mutations import COLUMNS, FUZZ_PART, LINES, SEPARATORS, Edit, edits, spoil

from gemm_tuner.profilers import TraceError, ncu, nsys, proton, rocprof, rocprofv3

DATA = Path(__file__).resolve().parents[1] / "data" / "profilers"
Read = Callable[[Path], pd.DataFrame]
READERS: dict[str, Read] = {
    "nsys": nsys.read_file,
    "ncu": ncu.read_file,
    "proton": proton.read_file,
    "rocprofv3": rocprofv3.read_file,
    "rocprof": rocprof.read_file,
}
PREFIXES = {"rocprof": ("rocprofv1", "rocprofv2"), "nsys": ("nsys", "SYNTHDB"), "rocprofv3": ("rocprofv3", "DERIVED")}
NUMBERS = ["start_ns", "duration_ns"]
TABLES = sorted(set(READERS) - {"proton"})


@cache
def samples_of(tool: str) -> list[tuple[bytes, pd.DataFrame]]:
    """The files that its reader takes, with what it reads there."""
    found = []
    for path in sorted(DATA.iterdir()):
        if path.name.startswith(PREFIXES.get(tool, (tool,))):
            try:
                found.append((path.read_bytes(), READERS[tool](path)))
            except TraceError:
                continue
    return found


def read_spoilt(tool: str, path: Path, data: bytes) -> pd.DataFrame | None:
    """What the reader makes of a file; None when it refuses it in one line that names the file."""
    path.write_bytes(data)
    try:
        frame = READERS[tool](path)
    except TraceError as error:
        message = error.one_line()
        assert "\n" not in message and len(message) < 4000
        assert str(path) in error.where
        return None
    assert len(frame) and frame["start_ns"].min() >= 0 and frame["start_ns"].is_monotonic_increasing
    assert frame["duration_ns"].between(0, 2.0**64).all()
    return frame


def rows(frame: pd.DataFrame, columns: list[str]) -> Counter[tuple[object, ...]]:
    return Counter(zip(*(frame[column].tolist() for column in columns), strict=True))


def test_every_reader_has_samples() -> None:
    assert {tool: len(samples_of(tool)) for tool in READERS} == {
        "nsys": 3,
        "ncu": 9,
        "proton": 1,
        "rocprofv3": 5,
        "rocprof": 3,
    }


@pytest.mark.parametrize("tool", READERS)
def test_any_change_is_read_or_refused(tool: str, tmp_path: Path) -> None:
    path = tmp_path / "trace"

    @FUZZ_PART
    @given(
        st.integers(0, len(samples_of(tool)) - 1), edits("flip", "delete", "insert", "replace", "cut", *LINES, *COLUMNS)
    )
    def run(sample: int, changes: list[Edit]) -> None:
        read_spoilt(tool, path, spoil(samples_of(tool)[sample][0], changes))

    run()


@pytest.mark.parametrize("tool", TABLES)
def test_lines_and_columns_moved_or_lost_leave_only_rows_of_the_file(tool: str, tmp_path: Path) -> None:
    path = tmp_path / "trace"

    @FUZZ_PART
    @given(st.integers(0, len(samples_of(tool)) - 1), edits("cut", "drop_line", "swap_lines", *COLUMNS))
    def run(sample: int, changes: list[Edit]) -> None:
        data, whole = samples_of(tool)[sample]
        frame = read_spoilt(tool, path, spoil(data, changes))
        columns = ["kernel_name", *NUMBERS]
        assert frame is None or not rows(frame, columns) - rows(whole, columns)

    run()


@pytest.mark.parametrize("tool", READERS)
def test_separators_put_anywhere_change_no_number(tool: str, tmp_path: Path) -> None:
    path = tmp_path / "trace"
    numbers = [rows(whole, NUMBERS) for _, whole in samples_of(tool)]

    @FUZZ_PART
    @given(st.integers(0, len(samples_of(tool)) - 1), edits("insert", most=2, texts=SEPARATORS))
    def run(sample: int, changes: list[Edit]) -> None:
        data, _ = samples_of(tool)[sample]
        frame = read_spoilt(tool, path, spoil(data, changes))
        assert frame is None or not rows(frame, NUMBERS) - numbers[sample]

    run()


def test_what_is_lost_from_a_trace_of_events_leaves_only_its_kernels(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    columns = ["kernel_name", "duration_ns"]

    @FUZZ_PART
    @given(st.integers(0, len(samples_of("proton")) - 1), edits("cut", "drop_line", most=2))
    def run(sample: int, changes: list[Edit]) -> None:
        data, whole = samples_of("proton")[sample]
        frame = read_spoilt("proton", path, spoil(data, changes))
        assert frame is None or not rows(frame, columns) - rows(whole, columns)

    run()

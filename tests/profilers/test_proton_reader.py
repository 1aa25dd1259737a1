"""Traces of proton: scopes, other events, broken files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from trace_samples import DATA, refusal

from gemm_tuner.profilers import base, proton

SAMPLE = DATA / "proton_triton3.6_h200_triton_matmul.json"


def kernel(name: Any, *scopes: str, ts: Any = 0.0, dur: Any = 5.0) -> dict[str, Any]:
    stack = {"call_stack": ["ROOT", *scopes, name]}
    return {"name": name, "cat": "kernel", "ph": "X", "tid": 7, "ts": ts, "dur": dur, "args": stack}


def write_trace(tmp_path: Path, *lines: list[dict[str, Any]]) -> Path:
    path = tmp_path / "trace.chrome_trace"
    path.write_text("".join(json.dumps({"displayTimeUnit": "us", "traceEvents": line}) + "\n" for line in lines))
    return path


def test_rows_are_launches_with_their_real_starts_and_scopes(tmp_path: Path) -> None:
    """Streams have a line each; rows are in the order of their starts."""
    path = write_trace(
        tmp_path,
        [kernel("reduce", "L9", ts=7.25, dur=1.5), kernel("fill", ts=0.0, dur=0.007)],
        [kernel("gemm", "L9", ts=2.5, dur=6.125), kernel("gemm", "warm-up", ts=1.0)],
    )
    assert proton.read_file(path).values.tolist() == [
        ["fill", 0, 7.0, "", ""],
        ["gemm", 1000, 5000.0, "", ""],
        ["gemm", 2500, 6125.0, "L9", ""],
        ["reduce", 7250, 1500.0, "L9", ""],
    ]


def test_what_is_no_kernel_is_left_out(tmp_path: Path) -> None:
    """As newer versions of proton write it: lanes, scopes on the host, and the kernels of launch metadata."""
    path = write_trace(
        tmp_path,
        [
            {"ph": "M", "name": "process_sort_index", "args": {"sort_index": 0}},
            {"cat": "scope", "name": "L1", "ph": "X", "ts": 0.5, "dur": 90.0, "args": {"call_stack": ["ROOT", "L1"]}},
            {"cat": "flow", "name": "launch->kernel", "ph": "s", "ts": 0.5, "id": 3, "bp": "e"},
            kernel("helper", "L1", "__proton_launch_metadata", ts=1.0),
            kernel("gemm", "L1", ts=2.0),
        ],
    )
    assert proton.read_file(path).values.tolist() == [["gemm", 2000, 5000.0, "L1", ""]]


@pytest.mark.parametrize("name", ["L", "L1x", "xL1", "l1", "L 1", "L1\n"])
def test_other_scopes_are_not_ours(tmp_path: Path, name: str) -> None:
    assert list(proton.read_file(write_trace(tmp_path, [kernel("gemm", name)]))["scope"]) == [""]


def test_a_kernel_may_be_called_like_a_scope(tmp_path: Path) -> None:
    frame = proton.read_file(write_trace(tmp_path, [kernel("L7", "L3", "inner")]))
    assert frame[["kernel_name", "scope"]].values.tolist() == [["L7", "L3"]]


def test_a_trace_without_kernels(tmp_path: Path) -> None:
    assert "no kernels recorded" in refusal(proton.read_file, write_trace(tmp_path, []), "empty")


@pytest.mark.parametrize(
    "event",
    [
        kernel("gemm", dur=-5.0),
        kernel("gemm", dur="5"),
        kernel("gemm", dur=float("nan")),
        kernel("gemm", ts=1e300),
        kernel("gemm", ts=-1.0),
        kernel(""),
        kernel(None),
        {**kernel("gemm"), "args": {"call_stack": "ROOT"}},
        {**kernel("gemm"), "args": []},
    ],
)
def test_kernels_that_no_run_gives_are_refused_with_their_line(tmp_path: Path, event: dict[str, Any]) -> None:
    path = write_trace(tmp_path, [kernel("gemm")], [event])
    assert f"{path}, line 2" in refusal(proton.read_file, path)


@pytest.mark.parametrize("text", ["[]", "{}", "[1]", "null", '{"traceEvents": 5}', "[" * 100_000, "\ud800"])
def test_what_is_no_trace(tmp_path: Path, text: str) -> None:
    path = tmp_path / "trace.chrome_trace"
    path.write_text(text, encoding="utf-8", errors="surrogatepass")
    refusal(proton.read_file, path)


def test_a_cut_trace_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "trace.chrome_trace"
    path.write_bytes(SAMPLE.read_bytes()[:-500])
    assert f"{path}, line 1" in refusal(proton.read_file, path)


def test_too_many_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "MAX_ROWS", 1)
    assert "too many kernels" in refusal(proton.read_file, write_trace(tmp_path, [kernel("gemm"), kernel("gemm")]))

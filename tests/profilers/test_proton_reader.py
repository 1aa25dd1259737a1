"""Trees of proton: scopes, sums over launches, broken trees."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from trace_samples import DATA, refusal

from gemm_tuner.profilers import base, proton


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
        ["fill", 0, 7.0, "", ""],
        ["gemm", 1, 99.0, "", ""],
        ["gemm", 2, 40.0, "L9", ""],
        ["gemm", 3, 40.0, "L9", ""],
        ["reduce", 4, 5.0, "L9", ""],
        ["gemm", 5, 50.0, "L10", ""],
    ]


def test_kernels_of_launch_metadata_are_left_out_inside_a_scope(tmp_path: Path) -> None:
    metadata = node("__proton_launch_metadata", node("deep", node("helper", count=1, time_ns=3)))
    frame = proton.read_file(write_tree(tmp_path, node("L1", metadata, node("gemm", count=1, time_ns=5))))
    assert frame.values.tolist() == [["gemm", 0, 5.0, "L1", ""]]


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
    assert re.search(r"the file is not whole JSON: .* \(line \d+", refusal(proton.read_file, path))


@pytest.mark.parametrize(
    ("child", "words"),
    [
        (node("gemm", count=10**9, time_ns=5), "ran 1000000000 times"),
        (node("gemm", count=True, time_ns=5), "ran true times"),
        (node("gemm", count=1, time_ns=10**400), "in 1000"),
        (node("gemm" * 10_000, count=1, time_ns=-1), "in -1 ns"),
    ],
)
def test_counts_and_times_that_no_run_gives(tmp_path: Path, child: dict[str, Any], words: str) -> None:
    message = refusal(proton.read_file, write_tree(tmp_path, child))
    assert words in message and len(message) < 500


def test_counts_that_are_too_large_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "MAX_ROWS", 100)
    children = [node("gemm", count=60, time_ns=5), node("gemm", count=60, time_ns=5)]
    assert "too many kernels" in refusal(proton.read_file, write_tree(tmp_path, *children))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[" + "9" * 5000 + "]", "4300 digits"),
        ('[{"frame": {}, "frame": {}}]', "key 'frame' is given twice"),
        ("[" * 100_000, "nested too deeply"),
        (b"\xff\xfe[]", "not UTF-8"),
    ],
)
def test_json_that_json_alone_would_take_or_die_of(tmp_path: Path, text: str | bytes, words: str) -> None:
    path = tmp_path / "trace.hatchet"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    assert words in refusal(proton.read_file, path)


def test_a_count_given_twice_is_not_read_as_its_last(tmp_path: Path) -> None:
    path = write_tree(tmp_path, node("gemm", count=1, time_ns=5))
    path.write_text(path.read_text().replace('"count": 1,', '"count": 1, "count": 5,'))
    assert "key 'count' is given twice" in refusal(proton.read_file, path)

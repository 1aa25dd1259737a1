"""Spoilt copies of the files that people hand over: read within their bounds, or refused in one line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from any_text import any_text
from hypothesis import given
from hypothesis import strategies as st
from mutations import FUZZ, FUZZ_PART, LINES, Edit, edits, spoil
from samples import load_sizes

from gemm_tuner.core.errors import UserError
from gemm_tuner.gemm.problem import GemmProblem
from gemm_tuner.gemm.problem_keys import Defaults
from gemm_tuner.launch.journal import read_journal
from gemm_tuner.launch.plan import Plan
from gemm_tuner.measure import replay
from gemm_tuner.space import space
from gemm_tuner.store import results, run_record
from gemm_tuner.store.run_record import Final, RunRecord, SizeRecord

RECORDING = Path(__file__).resolve().parents[1] / "data" / "h200_nsys_recording"
FINALS = RECORDING / "raw" / "01-finals" / "start00"
ROCM = b"""# ROCm's tuned list
- {'M': 4096, 'N': 4096, 'K': 4096, 'rowMajorA': 'T', 'rowMajorB': 'N', 'BLOCK_SIZE_M': 128, 'BLOCK_SIZE_N': 64, \
'BLOCK_SIZE_K': 64, 'GROUP_SIZE_M': 8, 'SPLIT_K': 1, 'num_warps': 8, 'num_stages': 2, 'waves_per_eu': 0}
- {M: 16, N: 1280, K: 8192}
- {M: 1, N: 1, K: 2147483647, dtype: fp16, bias: true}
- {M: 1024, N: 1024, K: 128, batch: 16, alpha: 0.125, beta: 1, activation: gelu}
- {M: 4097, N: 7168, K: 2048, dtype: fp8_e4m3, scaling: block}
"""
RECORD = RunRecord(
    command=("tune_gemm.py", "-m", "4"),
    seconds=1.5,
    header={"device": "NVIDIA H200", "seed": 0},
    device={"name": "NVIDIA H200", "num_sms": 132},
    stages={"compile": 1.0},
    facts={"kernels compiled": 3},
    sizes=(
        SizeRecord(
            GemmProblem(16, 1280, 8192, alpha=0.5),
            10,
            ({"rule": "r", "kind": "validity", "why": "w", "cut": 7, "remain": 3},),
            {"pruned": 7, "ok": 3},
            0.5,
            (Final("a", (101.25, 102.5)), Final("torch.mm", (103.75, 104.5))),
            chosen="a",
        ),
        SizeRecord(GemmProblem(7, 8, 9), 10, (), {"pruned": 10}, 0.5, failure="no configuration has a time"),
    ),
    results_file="tuned.yaml",
    notes={"noise_pct": 0.4},
)


def record_text(folder: Path) -> bytes:
    return run_record.write(folder, RECORD).read_bytes()


def few_lines(path: Path, count: int) -> bytes:
    return b"".join(path.read_bytes().splitlines(keepends=True)[:count])


# kind: name of the file, a whole one, and how it is read
CASES: dict[str, tuple[str, Callable[[Path], bytes], Callable[[Path], Any]]] = {
    "sizes": ("sizes.yaml", lambda _: ROCM, lambda path: load_sizes(path, Defaults())),
    "results": ("tuned.yaml", lambda _: (RECORDING / "tuned.yaml").read_bytes(), results.read),
    "space": (
        "space.yaml",
        lambda _: (RECORDING / "space.yaml").read_bytes(),
        lambda path: space.load(path, "sm_90"),
    ),
    "run.json": ("run.json", record_text, lambda path: run_record.read(path.parent)),
    "plan": ("plan.json", lambda _: (FINALS / "plan.json").read_bytes(), Plan.read),
    "journal": (
        "journal.jsonl",
        lambda _: (
            few_lines(RECORDING / "raw" / "02-verify" / "start00" / "journal.jsonl", 6)
            + few_lines(FINALS / "journal.jsonl", 8)
        ),
        lambda path: read_journal(path, 3),
    ),
    "recording": (
        "recording.json",
        lambda _: (RECORDING / "raw" / "recording.json").read_bytes(),
        lambda path: replay.load(path.parent),
    ),
}


def read_spoilt(kind: str, path: Path, data: bytes) -> Any:
    """What the reader makes of a file; None when it refuses it in one printable line that names the file."""
    path.write_bytes(data)
    try:
        return CASES[kind][2](path)
    except UserError as error:
        message = error.one_line()
        assert message.isprintable() and len(message) < 4000
        assert str(path.parent) in message
        return None


@pytest.mark.parametrize("kind", CASES)
def test_any_change_is_read_or_refused(kind: str, tmp_path: Path) -> None:
    name, whole, _ = CASES[kind]
    data, path = whole(tmp_path), tmp_path / name
    assert read_spoilt(kind, path, data) is not None

    @FUZZ
    @given(edits("flip", "delete", "insert", "replace", "cut", *LINES))
    def run(changes: list[Edit]) -> None:
        read = read_spoilt(kind, path, spoil(data, changes))
        if kind == "sizes" and read is not None:
            for entry in read.entries:
                assert 1 <= min(entry.problem.m, entry.problem.n, entry.problem.k) < 2**31
                assert "/" not in entry.problem.key

    run()


def test_lines_moved_or_lost_leave_only_sizes_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "sizes.yaml"
    path.write_bytes(ROCM)
    known = set(load_sizes(path, Defaults()).entries)

    @FUZZ_PART
    @given(edits("cut", "drop_line", "swap_lines", "repeat_line"))
    def run(changes: list[Edit]) -> None:
        read = read_spoilt("sizes", path, spoil(ROCM, changes))
        assert read is None or set(read.entries) <= known

    run()


def test_a_results_file_cut_anywhere_has_no_other_number(tmp_path: Path) -> None:
    path = RECORDING / "tuned.yaml"
    data, known = path.read_bytes(), {row.problem: row for row in results.read(path).rows}
    path = tmp_path / "tuned.yaml"

    @FUZZ_PART
    @given(edits("cut", most=1))
    def run(changes: list[Edit]) -> None:
        read = read_spoilt("results", path, spoil(data, changes))
        for row in read.rows if read is not None else ():
            assert row.config == known[row.problem].config
            assert row.facts.items() <= known[row.problem].facts.items()

    run()


def test_a_record_that_lost_lines_has_no_other_number(tmp_path: Path) -> None:
    data, path = record_text(tmp_path), tmp_path / "run.json"
    whole = {size.problem: size for size in RECORD.sizes}

    @FUZZ_PART
    @given(edits("cut", "drop_line", most=2))
    def run(changes: list[Edit]) -> None:
        read = read_spoilt("run.json", path, spoil(data, changes))
        for size in read.sizes if read is not None else ():
            known = whole.get(size.problem)
            if known is not None:  # a problem that lost a factor is another one
                assert {final.name for final in size.finals} <= {final.name for final in known.finals}
                for final in size.finals:
                    (times,) = (one.samples_us for one in known.finals if one.name == final.name)
                    assert set(final.samples_us) <= set(times)

    run()


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | any_text(6) | st.just(10**400),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(any_text(4), inner, max_size=3),
    max_leaves=5,
)


def paths_of(value: Any) -> list[tuple[Any, ...]]:
    """The place of every value inside a JSON document."""
    if not isinstance(value, (dict, list)):
        return [()]
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    return [(), *((key, *rest) for key, inner in pairs for rest in paths_of(inner))]


@pytest.mark.parametrize("kind", ["run.json", "plan", "recording"])
def test_any_value_in_any_place_is_read_or_refused(kind: str, tmp_path: Path) -> None:
    name, whole, _ = CASES[kind]
    text, path = whole(tmp_path), tmp_path / name
    places = paths_of(json.loads(text))

    @FUZZ_PART
    @given(st.sampled_from(places), VALUES)
    def run(place: tuple[Any, ...], value: Any) -> None:
        document = json.loads(text)
        if place:
            at = document
            for key in place[:-1]:
                at = at[key]
            at[place[-1]] = value
        else:
            document = value
        read_spoilt(kind, path, json.dumps(document).encode())

    run()

"""Notes of launches: many writers, and specs of what was noted."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from gemm_tuner.core.errors import UserError
from gemm_tuner.kernels import launch_notes
from gemm_tuner.kernels.collected import collected
from gemm_tuner.kernels.launch_notes import LaunchNote, Memory
from gemm_tuner.kernels.stores import stored_parameters, unwritten_parameters

NOTE = LaunchNote(
    kernel="add", file="/nowhere/kernels.py", key=["n"], scalars={"n": 64, "stride": 7}, grid=["(grid_0 // BLOCK)"],
    tensors={"x": Memory("fp32", 441)}, constants=[64], configs=[{"BLOCK": 32, "num_warps": 4}], unsaid=[],
)  # fmt: skip
WRITE = """
import sys
from pathlib import Path
from gemm_tuner.kernels import launch_notes
from gemm_tuner.kernels.launch_notes import LaunchNote
for number in range(200):
    note = LaunchNote(sys.argv[2] * 3000, "f", [], {"n": number}, {}, [], [], [], [])
    launch_notes.append(Path(sys.argv[1]), note)
"""


def test_processes_that_write_at_once_do_not_mix_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "made" / "notes.jsonl"
    writers = [subprocess.Popen([sys.executable, "-c", WRITE, str(path), letter]) for letter in "abc"]
    assert [one.wait() for one in writers] == [0, 0, 0]
    notes = list(launch_notes.read(path))
    assert {(one.kernel, one.scalars["n"]) for one in notes} == {(k * 3000, n) for k in "abc" for n in range(200)}
    assert len(notes) == 600


def test_a_line_that_is_no_note_is_named(tmp_path: Path) -> None:
    path = tmp_path / "notes.jsonl"
    launch_notes.append(path, NOTE)
    assert list(launch_notes.read(path)) == [NOTE]
    path.write_text(path.read_text() + '{"kernel": "half of a li')
    with pytest.raises(UserError, match="line 2"):
        list(launch_notes.read(path))


def test_grids_of_several_cases_keep_what_differs(tmp_path: Path) -> None:
    notes = [
        replace(NOTE, scalars={"n": n, "stride": 7}, constants=[n + 1, 2], grid=["(grid_0 // BLOCK)", "grid_1"])
        for n in (64, 128)
    ]
    (found,) = collected(notes, tmp_path)
    assert found.spec["grid"] == ["(grid_0 // BLOCK)", "2"]
    assert [case["grid_0"] for case in found.spec["cases"]] == [65, 129]
    assert found.spec["tensors"]["x"]["shape"] == ["x_elements"] and found.spec["cases"][0]["x_elements"] == 441.0


@pytest.mark.parametrize(("rows", "shape"), [((64, 64), ["64", "n"]), ((63, 64), ["grid_0", "n"])])
def test_a_tensor_of_a_row_for_each_program_shrinks_with_the_row(
    tmp_path: Path, rows: tuple[int, int], shape: list[str]
) -> None:
    """A check of fewer columns would else find the rest of the output unwritten."""
    notes = [
        replace(NOTE, scalars={"n": n}, tensors={"x": Memory("fp32", m * n)}, constants=[m], grid=["grid_0"])
        for n, m in zip((1000, 61), rows, strict=True)
    ]
    (found,) = collected(notes, tmp_path)
    assert found.spec["tensors"]["x"]["shape"] == shape
    assert found.spec["cases"][0].get("grid_0") == (63 if rows[0] == 63 else None)


def test_the_newest_note_of_a_key_counts_and_other_configurations_are_ruled_out(tmp_path: Path) -> None:
    configs = [{"BLOCK": 32, "num_warps": 4}, {"BLOCK": 64, "num_warps": 8}]
    newer = replace(NOTE, scalars={"n": 64, "stride": 9}, configs=configs)
    (found,) = collected([NOTE, newer], tmp_path)
    assert found.launches == 2 and found.cases == 1 and found.spec["cases"][0]["stride"] == 9
    assert found.spec["params"] == {"BLOCK": [32, 64], "num_warps": [4, 8]}
    assert found.spec["rules"][0]["keep"] == "(BLOCK == 32 and num_warps == 4) or (BLOCK == 64 and num_warps == 8)"


@pytest.mark.parametrize(
    "older",
    [
        replace(NOTE, scalars={"m": 64, "stride": 7}, key=["m"]),  # an argument has another name
        replace(NOTE, scalars={"n": 32, "stride": 7, "extra": 1}),
        replace(NOTE, scalars={"n": 32, "stride": 7}, tensors={"y": Memory("fp32", 441)}),
        replace(NOTE, scalars={"n": 32}, tensors={**NOTE.tensors, "stride": Memory("fp32", 8)}),
        replace(NOTE, scalars={"n": 32, "stride": 7}, configs=[{"BLOCK_N": 32, "num_warps": 4}]),
    ],
)
def test_notes_of_a_kernel_with_other_parameters_are_left_out(tmp_path: Path, older: LaunchNote) -> None:
    """The newest note tells what the kernel takes now, also where the older notes are more."""
    twice = [replace(older, scalars={**older.scalars, next(iter(older.scalars)): n}) for n in (8, 16)]
    (found,) = collected([*twice, NOTE], tmp_path)
    assert found.launches == 3 and found.cases == 1
    assert found.spec == collected([NOTE], tmp_path)[0].spec
    (sentence,) = set(found.left_out) - set(collected([NOTE], tmp_path)[0].left_out)
    assert "2 of 3 notes" in sentence
    (still,) = collected([NOTE, replace(NOTE, scalars={"n": 32, "stride": 7}, configs=[{"BLOCK": 32}])], tmp_path)
    assert still.cases == 2, "an option of a launch is no parameter of the kernel"


def test_stores_are_followed_to_parameters() -> None:
    source = """
def kernel(x, index, out, total, flags, desc, n, BLOCK):
    at = tl.load(index + tl.arange(0, BLOCK))
    rows = out + at * n
    pointer = rows
    pointer += 1
    tl.store(pointer, tl.load(x + at), mask=at < n)
    tl.atomic_add(total, 1)
    desc.store([0, 0], x)
    seen = tl.load(flags)
"""
    assert stored_parameters(source, "kernel") == ("out", "total", "desc", "n")
    assert stored_parameters(source, "other") == ()
    assert unwritten_parameters(source, "kernel") == {"x", "index", "flags", "BLOCK"}
    assert unwritten_parameters(source, "other") == frozenset()


@pytest.mark.parametrize(
    "store",
    [
        "tl.make_tensor_descriptor(b, [n], [1], [8]).scatter(tl.load(a), rows, 0)",
        "desc = tl.make_tensor_descriptor(b, [1], [1], [8])\n    desc.scatter(tl.load(a), rows, 0)",
        "desc = tl.make_tensor_descriptor(b, [1], [1], [8])\n    tl.store_tensor_descriptor(desc, [0], tl.load(a))",
        "tl.store_tensor_descriptor(value=tl.load(a), desc=b, offsets=[0])",
        "tl.atomic_store(b + rows, tl.load(a))",
        "tl._experimental_descriptor_store(b, tl.load(a), [0])",
    ],
)
def test_every_way_to_store_makes_an_output(store: str) -> None:
    source = f"def kernel(a, b, rows):\n    {store}\n"
    assert "b" in stored_parameters(source, "kernel") and "a" not in stored_parameters(source, "kernel")
    assert "b" not in unwritten_parameters(source, "kernel") and "a" in unwritten_parameters(source, "kernel")


def test_what_another_function_may_write_is_not_taken_for_an_input() -> None:
    source = """
def kernel(a, b, c, d, e, f, g, h, i, n, BLOCK, TILE):
    x = tl.load(a + n).to(tl.float32) + g.load([0])
    y = tl.math.exp(tl.cast(b, tl.float32))
    z = x.to(b.dtype.element_ty)
    rows = Rows(n)
    rows.write(h, x)
    TILE.write(i, x)
    helper(c)
    other.store_tile(d + n, x)
    for pointer in (e,):
        tl.store(pointer, x)
    tl.inline_asm_elementwise("", "", [f], dtype=tl.int32, is_pure=False, pack=1)
"""
    assert unwritten_parameters(source, "kernel") == {"a", "b", "g", "BLOCK", "TILE"}

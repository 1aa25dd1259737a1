"""Users' kernels as source and as a module that launches them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from kernel_exports import BUCKETS, export, tuned
from script_runner import run_script

from gemm_tuner.core.errors import EXIT_INPUT
from gemm_tuner.core.records import Verified
from gemm_tuner.store import results

SOURCE = """\
# softmax_rows, tuned on NVIDIA H200 (sm_90), 2026-01-31T12:00:00Z; by rows, cols, dtype
# Launches must not set ROWS, num_warps.
# A source has one of these; --to module chooses among them by the case of each launch.

# 128_100_fp16: 2.00 us; verified: true
# 1000_100_fp16: 5.00 us; verified: agreed
@triton.autotune(configs=[triton.Config({'ROWS': 1}, num_warps=4)], key=[])
@triton.jit
def softmax_rows(out, x, stride, n_rows, n_cols, BLOCK: tl.constexpr, ROWS: tl.constexpr): ...

# 1500_100_fp16: 7.00 us; verified: true
# 4096_100_fp16: 30.00 us; verified: true
@triton.autotune(configs=[triton.Config({'ROWS': 4}, num_warps=4)], key=[])
@triton.jit
def softmax_rows(out, x, stride, n_rows, n_cols, BLOCK: tl.constexpr, ROWS: tl.constexpr): ...
"""
BAKED = """
import torch
from softmax import softmax_rows
x = torch.randn(5, 37)
out = torch.full_like(x, float("nan"))
softmax_rows[lambda meta: (-(-5 // meta["ROWS"]),)](out, x, 37, 5, 37, BLOCK=64)
assert torch.allclose(out, torch.softmax(x, -1), atol=1e-5)
"""


def test_the_source_is_the_decorator_with_the_one_configuration_of_each_case(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert export(tuned(tmp_path, {1000: Verified.AGREED}), "source") == 0
    printed = capsys.readouterr().out
    assert printed == SOURCE and not (tmp_path / "out").exists()
    decorator = next(line for line in printed.splitlines() if "'ROWS': 4" in line)
    kernel = tmp_path / "softmax.py"
    kernel.write_text(kernel.read_text().replace("@triton.jit", f"{decorator}\n@triton.jit"))
    run_script(BAKED, tmp_path)


TILES = {f"softmax_rows_TILE{rows}x{rows}_num_warps4": us for rows, us in ((1, 3.0), (4, 2.0))}
USE_TILE = """
import torch, tuned_softmax_rows as tuned
assert tuned.choose(5, 100, "fp16") == {"TILE": (4, 4), "num_warps": 4}
x = torch.randn(5, 100).to(torch.float16)
out = torch.full_like(x, float("nan"))
tuned.launch(x, out)
assert torch.allclose(out.float(), torch.softmax(x.float(), -1), atol=1e-3)
"""


def of_tiles(folder: Path, rows: str = "TILE[0]", **keys: Any) -> Path:
    """TILE is a list of two numbers, and no parameter of the kernel."""
    args = {"stride": "cols", "n_rows": "rows", "n_cols": "cols", "BLOCK": "next_power_of_2(cols)", "ROWS": rows}
    params = {"TILE": [[1, 1], [4, 4]], "num_warps": [4]}
    changed = {"args": args, "params": params, "grid": ["cdiv(rows, ROWS)"], "rules": [], **keys}
    return tuned(folder, times_of={5: TILES}, **changed)


def test_a_parameter_of_the_spec_alone_becomes_what_the_kernel_is_launched_with(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = of_tiles(tmp_path)
    assert export(path, "json", "--device_name", "H200") == 0
    json_text = (tmp_path / "out" / "H200-SOFTMAX_ROWS.json").read_text()
    assert json.loads(json_text) == {"5_100_fp16": {"TILE": [4, 4], "num_warps": 4}}
    assert export(path, "triton") == 0
    loaded: dict[str, Any] = {}
    exec((tmp_path / "out" / "softmax_rows_configs.py").read_text(), loaded)
    assert loaded["CONFIGS"][5, 100, "fp16"].kwargs == {"ROWS": 4}
    assert export(path, "module") == 0
    run_script(USE_TILE, tmp_path / "out")
    capsys.readouterr()
    assert export(path, "source") == 0
    printed = capsys.readouterr().out
    assert "# Launches must not set num_warps, ROWS.\n" in printed
    decorator = next(line for line in printed.splitlines() if line.startswith("@triton.autotune"))
    kernel = tmp_path / "softmax.py"
    kernel.write_text(kernel.read_text().replace("@triton.jit", f"{decorator}\n@triton.jit"))
    run_script(BAKED, tmp_path)


def test_a_parameter_of_the_grid_alone_is_not_left_out_unsaid(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The kernel would be launched with the caller's grid, which may be another than what was timed."""
    path = of_tiles(tmp_path, "1", grid=["cdiv(rows, TILE[0])"])
    for to in ("triton", "source"):
        assert export(path, to) == EXIT_INPUT
        said = capsys.readouterr().err
        assert "TILE" in said and "--to module" in said
    assert export(path, "module") == 0


@pytest.mark.parametrize(
    ("rows", "of"), [("TILE[0] * cdiv(rows, rows)", "case"), ("TILE[0] * min(device.num_sms, 1)", "device")]
)
def test_what_also_follows_from_the_launch_is_left_to_the_module(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], rows: str, of: str
) -> None:
    path = of_tiles(tmp_path, rows, key=["pow2(rows)"])
    for to in ("triton", "source"):
        assert export(path, to) == EXIT_INPUT
        said = capsys.readouterr().err
        assert f"ROWS follows from TILE, and from the {of}" in said and "--to module" in said


def test_the_source_of_a_key_says_how_it_was_chosen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert export(tuned(tmp_path, **BUCKETS), "source", "--unverified", "--json") == 0
    text = json.loads(capsys.readouterr().out)["sources"]["softmax_rows"]
    assert "by bucket(rows)" in text and "# medium: verified: false; the least total of 2 cases: 13.00 us" in text


USE = """
import torch, tuned_softmax_rows as tuned
assert tuned.choose(1500, 100, "fp16") == {"ROWS": 4, "num_warps": 4}
assert tuned.choose(130, 100, "fp16")["ROWS"] == 1 and tuned.choose(9000, 90, "fp16")["ROWS"] == 4
for case in ((130, 100, "bf16"),):
    try:
        tuned.choose(*case)
    except LookupError as error:
        assert "128" in str(error)
    else:
        raise AssertionError
for rows in (1, 7):
    x = torch.randn(rows, 37).to(torch.float16)
    out = torch.full_like(x, float("nan"))
    tuned.launch(x, out)
    assert torch.allclose(out.float(), torch.softmax(x.float(), -1), atol=1e-3), rows
"""


def test_the_module_picks_by_the_case_and_launches_the_users_kernel(tmp_path: Path) -> None:
    path = tuned(tmp_path)
    assert export(path, "module") == 0
    run_script(USE, tmp_path / "out")


NO_BLOCK = """
import torch, tuned_softmax_rows as tuned
def launch(rows, cols):
    x = torch.randn(rows, cols).to(torch.float16)
    out = torch.full_like(x, float("nan"))
    tuned.launch(x, out)
    assert torch.allclose(out.float(), torch.softmax(x.float(), -1), atol=1e-3)
launch(2, 100)
try:
    launch(2, {cols})
except LookupError as error:
    assert "BLOCK >= cols (a row is one block)" in str(error) and "cols={cols}" in str(error), error
    assert {refused}, error
else:
    assert not {refused}
"""


@pytest.mark.parametrize("keys, cols, refused", [({}, 300, False), ({}, 600, True), (BUCKETS, 300, True)])
def test_the_module_gives_no_case_a_configuration_that_breaks_a_rule_there(
    tmp_path: Path, keys: dict[str, Any], cols: int, refused: bool
) -> None:
    """BLOCK is 128 for those of few rows and 512 for the others. The second rule holds: ``and`` is true or false."""
    args = {"stride": "cols", "n_rows": "rows", "n_cols": "cols", "BLOCK": "128 * ROWS"}
    rules = [{"keep": "BLOCK >= cols", "why": "a row is one block"}, "(rows and cols) <= device.num_sms"]
    path = tuned(tmp_path, args=args, rules=rules, **keys)
    assert export(path, "module", "--unverified") == 0
    run_script(NO_BLOCK.format(cols=cols, refused=refused), tmp_path / "out")


def test_a_table_may_name_configurations_that_are_not_of_the_parameters(tmp_path: Path) -> None:
    """A host function's default, or one of --update: the fastest at two cases of a key that chose others."""
    path = tuned(tmp_path, **BUCKETS)
    for row in results.read(path).rows:
        table = tmp_path / "configs" / f"{row.problem.key}.csv.gz"
        of_host = pd.DataFrame({"name": ["softmax_rows_ROWS9_num_warps4"], "status": "ok", "screen_us": 1.0})
        pd.concat([pd.read_csv(table), of_host]).to_csv(table, index=False)
    assert export(path, "json", "--unverified") == 0
    found = json.loads((tmp_path / "out" / "sm_90-SOFTMAX_ROWS.json").read_text())
    assert found["medium"]["ROWS"] == 4

"""Users' kernels in files: a key's configuration, AITER's JSON, triton.Config, and a module that launches."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml
from script_runner import run_script

import gemm_tuner as gt
from gemm_tuner.cli import key_validation
from gemm_tuner.cli.main import main
from gemm_tuner.core.choice import Choice
from gemm_tuner.core.errors import EXIT_INPUT
from gemm_tuner.core.records import Verified
from gemm_tuner.cute.problem import problem_of
from gemm_tuner.kernels import kernel_spec_file
from gemm_tuner.kernels.problem import KernelProblem
from gemm_tuner.kernels.workload import configs_of
from gemm_tuner.store import results, run_record
from gemm_tuner.store.results import Header
from gemm_tuner.store.run_record import RunRecord, SizeRecord

ROOT = Path(__file__).resolve().parents[3]
EXAMPLE = ROOT / "examples" / "kernels"
BUCKETS = {"key": "bucket(rows)", "buckets": {"small": 256, "medium": 2048, "large": "inf"}}
HEADER = Header(
    "1", "2026-01-31T12:00:00Z", "NVIDIA H200", "sm_90", 132, "", "3.6", "2.11", "3.12", "nsys", "1", "randn", 0,
    "flushed", "measured", "",
)  # fmt: skip
ONE, FOUR = "softmax_rows_ROWS1_num_warps4", "softmax_rows_ROWS4_num_warps4"
# By rows: the time of each configuration. At 1000 and 1500 rows the best of each is not the best of both.
TIMES: Mapping[int, Mapping[str, float]] = {
    128: {ONE: 2.0, FOUR: 3.0},
    1000: {ONE: 5.0, FOUR: 6.0},
    1500: {ONE: 20.0, FOUR: 7.0},
    4096: {ONE: 40.0, FOUR: 30.0},
}


def tuned(
    folder: Path,
    how: Mapping[int, Verified] | None = None,
    source: str = "measured",
    times_of: Mapping[int, Mapping[str, float]] = TIMES,
    **keys: Any,
) -> Path:
    """A results file and its run, as one on a GPU would have left them. how: rows that were checked otherwise."""
    folder.mkdir(exist_ok=True)
    (folder / "softmax.py").write_text((EXAMPLE / "softmax.py").read_text())
    cases = {"rows": list(times_of), "cols": 100, "dtype": "fp16"}
    params = {"ROWS": [1, 4], "num_warps": [4]}
    spec = {**yaml.safe_load((EXAMPLE / "softmax.yaml").read_text()), "cases": cases, "params": params, **keys}
    spec = {key: value for key, value in spec.items() if value is not None}
    (folder / "spec.yaml").write_text(yaml.safe_dump(spec, sort_keys=False))
    read, of = kernel_spec_file.read(folder / "spec.yaml")
    problems = [problem_of(read, case) for case in of]
    configs = {one.name: one for one in configs_of(read)}
    (folder / "configs").mkdir()
    rows, sizes = [], []
    for problem, times in zip(problems, times_of.values(), strict=True):
        best = min(times, key=times.__getitem__)
        verified = (how or {}).get(dict(problem.case)["rows"], Verified.TRUE)
        table = pd.DataFrame(
            {"name": list(times), "status": "ok", "finals_us": None, "screen_us": list(times.values())}
        )
        table.to_csv(folder / "configs" / f"{problem.key}.csv.gz", index=False)
        choice = Choice(
            problem,
            configs[best],
            source,
            verified,
            times[best],
            1.0,
            2.0,
            10,
            None,
            0.0,
            0.1,
            "",
            None,
            False,
            0.0,
        )
        rows.append(results.choice_row(choice))
        sizes.append(SizeRecord(problem, 2, (), {"ok": 2}, 0.0, chosen=best))
    header = {**vars(HEADER), "run": str(folder)}
    run_record.write(folder, RunRecord((), 1.0, header, {}, {}, {}, tuple(sizes), "tuned.yaml"))
    results.write_rows(folder / "tuned.yaml", header, rows, [])
    return folder / "tuned.yaml"


def export(path: Path, to: str, *more: str) -> int:
    return main(["export", str(path), "--to", to, "-o", str(path.parent / "out"), *more])


def test_json_has_aiters_name_and_layout_and_one_entry_a_key(tmp_path: Path) -> None:
    path = tuned(tmp_path)
    assert export(path, "json", "--device_name", "MI300X") == 0
    file = tmp_path / "out" / "MI300X-SOFTMAX_ROWS.json"
    wanted = {f"{rows}_100_fp16": {"ROWS": 4 if rows > 1000 else 1, "num_warps": 4} for rows in TIMES}
    assert file.read_text() == json.dumps(wanted, indent=4) + "\n"
    file.write_text(json.dumps({"other": {"ROWS": 9}}))
    assert export(path, "json", "--device_name", "MI300X") == 0
    assert json.loads(file.read_text()) == {"other": {"ROWS": 9}, **wanted}


def test_what_no_gpu_timed_or_checked_replaces_no_entry_unless_asked_to(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, file = tuned(tmp_path, source="predicted"), tmp_path / "out" / "sm_90-SOFTMAX_ROWS.json"
    assert export(path, "json", "--predicted") == 0
    predicted = json.loads(file.read_text())
    there = {**predicted, "4096_100_fp16": {"ROWS": 2, "num_warps": 8}}
    file.write_text(json.dumps(there, indent=4) + "\n")
    assert export(path, "json", "--predicted") == 1
    said = capsys.readouterr()
    assert json.loads(file.read_text()) == there
    assert "has another entry for 4096_100_fp16, which a prediction does not replace" in said.err
    assert f"unchanged, {len(TIMES) - 1} keys" in said.out
    assert export(path, "json", "--predicted", "--overwrite") == 0
    assert json.loads(file.read_text()) == predicted
    assert export(path, "source", "--predicted", "--overwrite") == EXIT_INPUT
    (tmp_path / "unchecked").mkdir()
    path = tuned(tmp_path / "unchecked", dict.fromkeys(TIMES, Verified.FALSE))
    file.write_text(json.dumps(there))
    assert export(path, "json", "--unverified", "-o", str(file.parent)) == 1
    assert json.loads(file.read_text()) == there and "what no GPU checked does not" in capsys.readouterr().err


# Other configurations are best at 128 and 4096, and 1000 and 1500 are not among them.
GUESSED = {128: {ONE: 9.0, FOUR: 8.0}, 4096: {ONE: 1.0, FOUR: 2.0}}


@pytest.mark.parametrize("form", ["triton", "module"])
def test_predictions_replace_nothing_measured_in_a_python_file_unless_asked_to(
    form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    measured, guessed = tuned(tmp_path / "a"), tuned(tmp_path / "b", source="predicted", times_of=GUESSED)
    out = tmp_path / "out"
    to = ["-o", str(out)]
    assert export(measured, form, *to) == 0
    (file,) = out.iterdir()
    before = file.read_text()
    assert export(guessed, form, "--predicted", *to) == 1
    assert file.read_text() == before
    said = capsys.readouterr()
    assert "a prediction does not replace; --overwrite does" in said.err and "unchanged, 0 keys" in said.out
    assert export(guessed, form, "--predicted", "--overwrite", *to) == 0
    assert file.read_text() != before
    assert export(measured, form, *to) == 0
    assert sorted(file.read_text().splitlines()) == sorted(
        before.splitlines()
    )  # entries that were there keep their places


def test_predictions_that_agree_with_what_is_there_are_no_reason_to_keep_it(tmp_path: Path) -> None:
    assert export(tuned(tmp_path / "a"), "module", "-o", str(tmp_path)) == 0
    assert export(tuned(tmp_path / "b", source="predicted"), "module", "--predicted", "-o", str(tmp_path)) == 0


def test_a_file_of_triton_configs_is_merged_by_key(tmp_path: Path) -> None:
    to = ["-o", str(tmp_path / "out")]
    assert export(tuned(tmp_path / "a", times_of={128: TIMES[128], 1000: TIMES[1000]}), "triton", *to) == 0
    assert export(tuned(tmp_path / "b", times_of={1000: {ONE: 2.0, FOUR: 1.0}}), "triton", *to) == 0
    (file,) = (tmp_path / "out").iterdir()
    assert re.findall(r"\((\d+), 100, 'fp16'\): triton.Config\({'ROWS': (\d)}", file.read_text()) == [
        ("128", "1"),
        ("1000", "4"),
    ]
    file.write_text("CONFIGS = make()\n")
    assert export(tuned(tmp_path / "c"), "triton", *to) == EXIT_INPUT
    assert file.read_text() == "CONFIGS = make()\n"


def test_an_export_without_rules_leaves_none_of_an_earlier_one(tmp_path: Path) -> None:
    file = tmp_path / "out" / "sm_90-SOFTMAX_ROWS.json"
    for name, keys in (("rules", BUCKETS), ("none", {})):
        (tmp_path / name).mkdir()
        assert export(tuned(tmp_path / name, **keys), "json", "--unverified", "-o", str(file.parent)) == 0
        assert ("rules" in json.loads(file.read_text())) == (name == "rules")


def test_a_bucket_gets_the_least_total_and_says_so_and_what_was_not_checked_needs_a_flag(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tuned(tmp_path, **BUCKETS)
    file = tmp_path / "out" / "sm_90-SOFTMAX_ROWS.json"
    assert export(path, "json") == 1
    assert "was not checked at rows=1000" in capsys.readouterr().err
    held = json.loads(file.read_text())
    assert held.pop("rules")[0]["keep"] == "next_power_of_2(cols) <= 2048 * num_warps"
    assert held.keys() == {"small", "large"}
    assert export(path, "json", "--predicted") == 0
    assert "checked in the interpreter only" in capsys.readouterr().out
    file.unlink()
    assert export(path, "json", "--unverified") == 0
    held = json.loads(file.read_text())
    assert {key: row["ROWS"] for key, row in held.items() if key != "rules"} == {
        "small": 1, "large": 4, "medium": 4,
    }  # fmt: skip
    said = capsys.readouterr().out
    assert "medium softmax_rows_ROWS4_num_warps4: the least total of 2 cases: 13.00 us, 8.3 %" in said
    assert "not checked" in said


def test_the_key_may_be_another_one_than_the_runs(tmp_path: Path) -> None:
    path = tuned(tmp_path)
    spec = yaml.safe_load((tmp_path / "spec.yaml").read_text())
    (tmp_path / "other.yaml").write_text(yaml.safe_dump({**spec, **BUCKETS}, sort_keys=False))
    assert export(path, "json", "--spec", str(tmp_path / "other.yaml"), "--unverified") == 0
    assert "medium" in json.loads((tmp_path / "out" / "sm_90-SOFTMAX_ROWS.json").read_text())
    (tmp_path / "other.yaml").write_text(yaml.safe_dump({**spec, "grid": ["rows"]}, sort_keys=False))
    assert export(path, "json", "--spec", str(tmp_path / "other.yaml")) == 2


def test_what_is_agreed_is_taken_and_named_and_what_is_interpreted_or_unchecked_needs_a_flag(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tuned(tmp_path, {128: Verified.AGREED, 1000: Verified.INTERPRETED, 4096: Verified.FALSE})
    for flags, left_out in (([], 2), (["--predicted"], 1), (["--predicted", "--unverified"], 0)):
        assert export(path, "triton", *flags) == (1 if left_out else 0)
        told = capsys.readouterr()
        assert told.err.count("left out") == left_out
        assert "128_100_fp16 softmax_rows_ROWS1_num_warps4: compared with other configurations only" in told.out
    text = (tmp_path / "out" / "softmax_rows_configs.py").read_text()
    assert "(128, 100, 'fp16'): triton.Config({'ROWS': 1}, num_warps=4),  # verified: agreed" in text
    assert "# verified: false" in text
    loaded: dict[str, Any] = {}
    exec(text, loaded)
    assert loaded["CONFIGS"][1500, 100, "fp16"].kwargs == {"ROWS": 4}
    assert loaded["CONFIGS"][1500, 100, "fp16"].num_warps == 4


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


def test_a_kernel_of_another_language_goes_to_json_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "make.py").write_text("def softmax_rows(ROWS, num_warps, dtype): ...\n")
    other = {"language": "cute", "kernel": "make.py:softmax_rows", "args": None, "grid": None, "rules": None}
    path = tuned(tmp_path, **other)
    assert export(path, "json") == 0
    assert len(json.loads((tmp_path / "out" / "sm_90-SOFTMAX_ROWS.json").read_text())) == len(TIMES)
    for to in ("triton", "module"):
        assert export(path, to) == 2
        assert "accepted: json" in capsys.readouterr().err


def test_what_no_kernel_goes_to_and_what_is_gone_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tuned(tmp_path)
    assert export(path, "vllm") == 2
    assert "takes GEMMs" in capsys.readouterr().err
    (tmp_path / "run.json").unlink()
    assert export(path, "json") == 2
    assert "name the spec file by --spec" in capsys.readouterr().err
    assert export(path, "json", "--spec", str(tmp_path / "spec.yaml")) == 0


def test_a_run_from_python_is_said_to_be_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    build = {"build": lambda config: lambda: config["n"], "space": {"n": [1]}}
    gt.callables(**build, reference=lambda: 1, benchmark=lambda call: 1.0, output_dir=tmp_path).tune()
    (folder,) = tmp_path.iterdir()
    assert export(folder / "tuned.yaml", "json") == 2
    assert "was tuned from Python, and has no spec" in capsys.readouterr().err
    assert export(folder / "tuned.yaml", "source") == 0
    said = capsys.readouterr().out
    assert "CONFIG = {'n': 1}\n" in said and "1.00 us; verified: true" in said
    assert export(folder, "json") == 2
    assert "its table is " in capsys.readouterr().err


def test_what_a_key_costs_at_a_case_is_read_from_its_finals(tmp_path: Path) -> None:
    path = tuned(tmp_path)
    (problem, *_) = (row.problem for row in results.read(path).rows)
    assert isinstance(problem, KernelProblem)
    table = tmp_path / "configs" / f"{problem.key}.csv.gz"
    pd.read_csv(table).assign(finals_us=[2.0, 2.5]).to_csv(table, index=False)
    assert key_validation.loss(path, problem, FOUR).pct == 25.0
    assert key_validation.loss(path, problem, ONE).pct == 0.0
    assert key_validation.loss(path, problem, "absent").pct is None

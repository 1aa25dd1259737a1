"""The command as a person runs it on a machine without a GPU: compiled, pruned, checked, and marked as predicted.

``make test`` runs it whole for gfx942, ``make test-all`` for sm_90 too.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from samples import NO_GPU

from gemm_tuner.cli.main import main
from gemm_tuner.core.records import Status, Verified
from gemm_tuner.measure import device
from gemm_tuner.space import prune
from gemm_tuner.store import results, run_record

ROOT = Path(__file__).resolve().parents[2]

SMALL_SPACE = {
    "BLOCK_SIZE_M": "[16, 64]",
    "BLOCK_SIZE_N": "[32]",
    "BLOCK_SIZE_K": "[64]",
    "GROUP_SIZE_M": "[1]",
    "SPLIT_K": "[1, 2]",
    "num_warps": "[4]",
    "num_stages": "[2]",
    "NUM_XCDS": "[1]",
    "matrix_instr_nonkdim": "[16]",
    "kpack": "[1]",
}


def small_space(folder: Path, arch: str) -> Path:
    """The architecture's space file with few values on each axis, and one family."""
    lines = []
    shipped, _, _ = (ROOT / "rules" / f"space_{arch}.yaml").read_text().partition("  gemm_persistent:")
    for line in shipped.splitlines():
        axis = line.strip().partition(":")[0]
        lines.append(f"    {axis}: {SMALL_SPACE[axis]}" if axis in SMALL_SPACE else line)
    path = folder / "space.yaml"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def known_to_have_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the process that asks torch for GPUs; the other tests here start it."""
    monkeypatch.setattr(device, "look", lambda: NO_GPU)


@pytest.mark.usefixtures("known_to_have_none")
@pytest.mark.parametrize("arch", [pytest.param("sm_90", marks=pytest.mark.grid), "gfx942"])
def test_predicted_row_is_compiled_checked_and_marked(
    arch: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    space = small_space(tmp_path, arch)
    sizes = tmp_path / "sizes.yaml"
    sizes.write_text("- {M: 64, N: 96, K: 512}\n- {M: 33, N: 65, K: 129, rowMajorB: N, bias: true, dtype: fp16}\n")

    status = main(
        ["--gemm-size-file", str(sizes), "--arch", arch, "--space", str(space), "--o", "tuned.yaml", "--time_breakdown"]
    )

    printed = capfd.readouterr()
    assert status == 0, printed.err
    read = results.read(tmp_path / "tuned.yaml")
    assert [row.problem.m for row in read.rows] == [64, 33]
    for row in read.rows:
        assert row.facts["source"] == "predicted" and row.verified is Verified.INTERPRETED
        assert row.facts["predicted_us"] > 0 and "median_us" not in row.facts
        assert row.facts["error_over_bound"] <= 1
    assert read.header["arch"] == arch and read.header["source"] == "predicted"
    assert "predicted us" in printed.out and "times are predicted" in printed.err
    assert "compile" in printed.out  # the stage table
    (folder,) = (tmp_path / "results").iterdir()
    for table in map(pd.read_csv, (folder / "configs").glob("*.csv.gz")):
        assert len(table) == table["name"].nunique()
        assert set(table["status"]) <= {status.value for status in Status}
        tried = table[table["status"] == "ok"]
        assert len(tried) > 0 and (tried["registers"] > 0).all() and (tried["shared_bytes"] > 0).all()
        assert table["screen_us"].isna().all()

    record = run_record.read(folder)
    in_order = [rule.name for rule in prune.in_order(prune.load_rules(ROOT / "rules")) if rule.name in record.rules]
    assert list(record.rules) == in_order and len(in_order) > 20
    for size in record.sizes:
        assert sum(size.counts.values()) == size.total == 4

    again = main(["--gemm-size-file", "tuned.yaml", "--compare_wo_tuning", "--arch", arch])
    assert again == 0
    assert "2 of 2 configurations are right" in capfd.readouterr().err


@pytest.mark.usefixtures("known_to_have_none")
def test_wrong_kernel_is_never_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    templates = tmp_path / "templates"
    templates.mkdir()
    for path in (ROOT / "templates").glob("*.j2"):
        text = path.read_text()
        (templates / path.name).write_text(text.replace("offs_k[None, :] < k_left", "offs_k[None, :] < k_left - 1"))
    space = small_space(tmp_path, "sm_90")

    status = main(
        ["-m", "64", "-n", "64", "-k", "100", "--space", str(space), "--templates", str(templates), "--o", "tuned.yaml"]
    )

    assert status == 1, capfd.readouterr().err
    read = results.read(tmp_path / "tuned.yaml")
    assert read.rows == () and len(read.without_config) == 1
    (table_path,) = (tmp_path / "results").glob("*/configs/*.csv.gz")
    table = pd.read_csv(table_path)
    wrong = table[table["status"] == "wrong"]
    assert len(wrong) > 0 and wrong["message"].str.contains("times the bound").all()


@pytest.mark.usefixtures("known_to_have_none")
@pytest.mark.parametrize("task", [(), ("--dry_run",), ("--compile_only",)])
@pytest.mark.parametrize("beside", ["", "- {M: 64, N: 64, K: 64}\n"])
def test_a_size_that_no_configuration_fits_is_one_without_configuration(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    task: tuple[str, ...],
    beside: str,
) -> None:
    """Alone as beside others, whatever is asked of it, and when the finished run is asked for again."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sizes.yaml").write_text(f"{beside}- {{M: 1000000000, N: 1000000000, K: 64}}\n")
    space = small_space(tmp_path, "sm_90")
    command = ["--gemm_size_file", "sizes.yaml", "--space", str(space), "-o", "tuned.yaml", *task]
    assert main(command) == 1
    assert (tmp_path / "tuned.yaml").exists() == (not task)
    if not task:
        read = results.read(tmp_path / "tuned.yaml")
        assert [row.problem.m for row in read.rows] == ([64] if beside else [])
        assert [problem.m for problem, _ in read.without_config] == [1000000000]
        (folder,) = (tmp_path / "results").iterdir()
        record = run_record.read(folder)
        assert record.results_file.endswith("tuned.yaml")
        assert [
            (size.problem.m, bool(size.failure), sum(size.counts.values()) == size.total > 0) for size in record.sizes
        ] == [
            *([(64, False, True)] if beside else []),
            (1000000000, True, True),
        ]
        capfd.readouterr()
        assert main(command) == 1 and main(["report", "tuned.yaml", "--text"]) == 0
        printed = capfd.readouterr()
        assert record.sizes[-1].failure in " ".join(f"{printed.out} {printed.err}".split())
        assert "other runs" not in printed.out and f"of {len(record.sizes)} sizes" in printed.out


def test_script_imports_nothing_heavy_and_explains_itself(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "tune_gemm.py"), "--version"], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 0 and done.stdout.startswith("tune_gemm ")


Answer = tuple[int, str, str]


@pytest.fixture
def checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], known_to_have_none: None
) -> Callable[[str], Answer]:
    """Checks given rows for sm_90; returns (exit status, standard output, standard error)."""
    monkeypatch.chdir(tmp_path)

    def check(rows: str) -> Answer:
        (tmp_path / "given.yaml").write_text(rows)
        status = main(["--gemm_size_file", "given.yaml", "--compare_wo_tuning", "--arch", "sm_90"])
        printed = capfd.readouterr()
        return status, printed.out, printed.err

    return check


def test_a_given_configuration_that_does_not_fit_the_target_is_not_right(
    checked: Callable[[str], Answer],
) -> None:
    blocks = "BLOCK_SIZE_M: 128, BLOCK_SIZE_N: 128, BLOCK_SIZE_K: 128, num_warps: 8, num_stages: 5"
    status, out, err = checked(f"- {{M: 512, N: 512, K: 2560, {blocks}}}\n")
    assert status == 1 and "0 of 1 configurations are right" in err and "could not run" in out


def test_given_kernels_that_no_interpreter_runs_are_left_to_a_gpu(checked: Callable[[str], Answer]) -> None:
    """Neither compiled nor called wrong; the others are checked."""
    cute = "M: 64, N: 64, K: 256, family: gemm_cute, BLOCK_SIZE_M: 64, BLOCK_SIZE_N: 64, BLOCK_SIZE_K: 64"
    tile = "M: 64, N: 64, K: 128, BLOCK_SIZE_M: 32, BLOCK_SIZE_N: 32, BLOCK_SIZE_K: 64, num_warps: 4, num_stages: 2"
    status, out, err = checked(f"- {{{cute}}}\n- {{{tile}}}\n")
    assert status == 1 and "1 of 2 configurations are right" in err and "1 could be checked on a GPU only" in err
    assert "its kernels run on a GPU only" in out and "wrong" not in out


@pytest.mark.usefixtures("known_to_have_none")
def test_variables_of_the_shell_do_not_reach_the_compilers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    space = small_space(tmp_path, "sm_90")
    assert main(["-m", "32", "-n", "32", "-k", "64", "--space", str(space), "--no_warmup"]) == 0, capfd.readouterr().err

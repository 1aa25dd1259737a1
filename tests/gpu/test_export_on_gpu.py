"""What stands in for a winner that a consumer cannot launch is checked on the GPU before it is exported."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from gpu_work import Gpu
from result_files import write_choices

from gemm_tuner.cli import main as cli
from gemm_tuner.core.choice import Choice
from gemm_tuner.core.language import language_of
from gemm_tuner.core.records import Verified
from gemm_tuner.gemm.config import KernelConfig
from gemm_tuner.gemm.problem import GemmProblem, Layout
from gemm_tuner.pipeline import check_now
from gemm_tuner.store import results

ROOT = Path(__file__).resolve().parents[2]
PROBLEM = GemmProblem(64, 512, 1024, "fp8_e4m3", "fp8_e4m3", "bf16", Layout.ROW, Layout.COL, scaling="block")
TILE = KernelConfig("gemm_tile", 64, 64, 128, 1, 1, 4, 3)
WINNER = replace(TILE, SPLIT_K=2)


def written(folder: Path, gpu: Gpu) -> Path:
    """A results file whose winner splits K, and a table with a tile that was screened only."""
    timed = (Verified.TRUE, 10.0, 9.5, 10.5, 30, 12.0, 0.01, 0.001, "", None, False, 70.0)
    header = results.Header(
        tool_version="0", date="2026-01-31T12:00:00Z", device=gpu.device.name, arch=gpu.device.target.arch, num_sms=1,
        driver="", triton="", torch="", python="", profiler="", profiler_version="", init_type="randn", seed=0,
        l2="flushed", source="measured",
    )  # fmt: skip
    path = folder / "tuned.yaml"
    write_choices(path, header, [Choice(PROBLEM, WINNER, "measured", *timed)])
    rows = [{"name": one.name, "status": "ok", **one.to_dict(), "screen_us": 10.0, "finals_us": None}
            for one in (WINNER, TILE)]  # fmt: skip
    (folder / "configs").mkdir()
    pd.DataFrame(rows).to_csv(folder / "configs" / f"{PROBLEM.key}.csv.gz", index=False)
    return path


def test_a_stand_in_is_checked_on_the_gpu_and_written(gpu: Gpu, tmp_path: Path) -> None:
    if gpu.device.target.arch not in ("sm_89", "sm_90", "sm_100"):
        pytest.skip("multiplies no OCP fp8")
    path = written(tmp_path, gpu)
    assert cli.main(["export", str(path), "--to", "vllm", "-o", str(tmp_path / "out")]) == 0
    (side,) = (tmp_path / "out").rglob("gemm_tuner_provenance.json")
    (notes,) = json.loads(side.read_text())["files"].values()
    assert notes["64"]["verified"] is True and notes["64"]["name"] == TILE.name


def test_a_wrong_stand_in_is_found_on_the_gpu(gpu: Gpu, tmp_path: Path) -> None:
    templates = tmp_path / "templates"
    shutil.copytree(ROOT / "templates", templates)
    macros = templates / "_macros.j2"
    spoilt = macros.read_text().replace("tl.dot(a, b, accumulator", "tl.dot(a, b, accumulator + 1")
    assert spoilt != macros.read_text()
    macros.write_text(spoilt)
    check = check_now.find(language_of("triton"), gpu.device.target, templates, tmp_path, print)
    problem = GemmProblem(64, 64, 256, "fp16", "fp16", "fp16")
    assert check.how is Verified.TRUE
    finding = check.first_right({problem: [replace(TILE, BLOCK_SIZE_K=64)]})[problem]
    assert not finding.name and "wrong" in finding.why

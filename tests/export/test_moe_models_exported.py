"""The files of public models' fused MoE layers, from config.json to each server's folder, byte for byte.

After a wanted change: ``pytest tests/export/test_moe_models_exported.py --update-golden``, and read the diff.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from export_samples import edited, export, files
from moe_models import layer
from samples import ROOT

from gemm_tuner.cli import main as cli
from gemm_tuner.core.plain_config import PlainConfig
from gemm_tuner.moe.servers import GRID, SERVERS, entry

GOLDEN = ROOT / "tests" / "golden" / "export_moe"
RESULTS = {"sm_90": GOLDEN / "h200.yaml", "gfx942": GOLDEN / "mi300x.yaml"}
# By number of tokens. The rest of the grid has no result, and gets the server's default.
TILES = {16: (16, 64, 128, 1, 4, 4), 256: (32, 128, 128, 1, 4, 3), 1024: (64, 128, 64, 16, 8, 3)}
DOWN = {"down_BLOCK_SIZE_N": 256, "down_num_stages": 2}
ON_AMD = {"waves_per_eu": 2, "matrix_instr_nonkdim": 16, "kpack": 1}
CASES = [
    *(("vllm-moe", model, "sm_90") for model in ("deepseek_v3", "qwen3_235b_a22b", "gpt_oss_120b")),
    *(("vllm-moe", model, "gfx942") for model in ("deepseek_v3", "mixtral_8x7b", "llama4_maverick")),
    *(("sglang-moe", model, "sm_90") for model in ("deepseek_v3", "llama4_maverick")),
    *(("aiter-moe", model, "gfx942") for model in ("qwen3_235b_a22b", "gpt_oss_120b")),
]


def row(problem: Any, arch: str) -> dict[str, Any]:
    """Of a results file: the problem as it is read off config.json, with a configuration that was measured."""
    values: dict[str, Any] = entry(*TILES[problem.M])
    if arch == "gfx942":
        amd = ON_AMD if problem.dtype == "bf16" else {"waves_per_eu": 2}
        values = {**values, "num_stages": 2, **amd}
    if SERVERS[problem.server].has_pairs:
        values = {**values, **DOWN}
    config = PlainConfig(SERVERS[problem.server].family, tuple(values.items()))
    said = {"name": config.name, "source": "measured", "verified": True, "median_us": 10.0 + problem.M / 8,
            "vendor_us": 20.0 + problem.M / 8, "samples": 90}  # fmt: skip
    return {**problem.row(), **config.to_dict(), **said}


def exported(to: str, model: str, arch: str, folder: Path) -> Path:
    server = "sglang" if to == "sglang-moe" else "vllm"
    found = layer(model, arch, server, None, "--m", ",".join(map(str, TILES)))
    emptied = {"without_config": lambda _: []} if arch == "sm_90" else {}
    rows = [row(one, arch) for one in found]
    results = edited(RESULTS[arch], folder / "moe.yaml", configs=lambda _: rows, **emptied)
    assert export(results, "--to", to, "-o", folder / "out") == 0
    return folder / "out"


@pytest.mark.parametrize(("to", "model", "arch"), CASES, ids=str)
def test_a_models_files_are_the_golden_ones(
    to: str, model: str, arch: str, tmp_path: Path, update_golden: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    golden, out = GOLDEN / "models" / f"{model}-{to}-{arch}", exported(to, model, arch, tmp_path)
    if update_golden:
        shutil.rmtree(golden, ignore_errors=True)
        for path, text in files(out).items():
            place = golden / Path(path).name  # tests/export/test_moe_export.py has the folders
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(text)
    assert {Path(path).name: text for path, text in files(out).items()} == files(golden) != {}
    capsys.readouterr()
    if to == "aiter-moe":
        return
    assert cli.main(["serve-check", str(out), "--as", to, "--m", ",".join(map(str, GRID)), "--json"]) == 0
    (first, *_) = json.loads(capsys.readouterr().out)["files"]
    served = {one["m"]: one["config"] for one in first["servings"]}
    assert list(served) == list(GRID)
    assert all(served[m]["BLOCK_SIZE_N"] == tile[1] for m, tile in TILES.items())


def test_layers_with_scales_of_blocks_have_no_file_of_aiter(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = layer("deepseek_v3", "gfx942", "vllm", None, "--m", "256")
    results = edited(RESULTS["gfx942"], tmp_path / "moe.yaml", configs=lambda _: [row(found[0], "gfx942")])
    assert export(results, "--to", "aiter-moe", "-o", tmp_path / "out") == 1
    assert "block scales" in capsys.readouterr().err and files(tmp_path / "out") == {}

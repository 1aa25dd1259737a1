"""Tuned files of servers, as their loaders read them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gemm_tuner.core.errors import UserError
from gemm_tuner.moe import tuned_file
from gemm_tuner.moe.problem import MoeProblem
from gemm_tuner.moe.servers import entry

LAYER = MoeProblem("vllm", 64, 128, 768, 2048, 8)
ENTRY = entry(16, 64, 64, 1, 4, 3)


def written(folder: Path, body: Any) -> Path:
    path = folder / f"{len(list(folder.iterdir()))}.json"
    path.write_text(json.dumps(body))
    return path


def test_the_nearest_number_of_tokens_serves(tmp_path: Path) -> None:
    body = {"triton_version": "3.6.0", "1": ENTRY, "100": {**ENTRY, "SPLIT_K": 1, "num_stages": 5, "waves_per_eu": 0}}
    path = written(tmp_path, body)
    found = [tuned_file.config_at(path, LAYER.at(tokens), "sm_90").options() for tokens in (1, 50, 51, 5000)]
    assert found[0] == found[1] == ENTRY
    assert found[2] == found[3] == {**ENTRY, "num_stages": 5, "waves_per_eu": 0}
    assert (
        tuned_file.config_at(written(tmp_path, {"1": {**ENTRY, "USE_TMA": False}}), LAYER, "sm_90").options() == ENTRY
    )


def test_sglangs_entry_is_for_the_up_projection(tmp_path: Path) -> None:
    """It reuses the tile without TMA for the other GEMM, of which no file is given."""
    layer, by_tma = replace(LAYER, server="sglang"), written(tmp_path, {"1": {**ENTRY, "USE_TMA": True}})
    assert tuned_file.config_at(by_tma, layer, "sm_90").options() == {**ENTRY, "USE_TMA": 1, "down_USE_TMA": 0}
    for entry_ in (ENTRY, {**ENTRY, "USE_TMA": False}):
        assert tuned_file.config_at(written(tmp_path, {"1": entry_}), layer, "sm_90").options() == {
            **ENTRY,
            "USE_TMA": 0,
        }
    int8 = replace(layer, dtype="int8_w8a16", scaling="channel")
    assert tuned_file.config_at(written(tmp_path, {"1": ENTRY}), int8, "sm_90").options() == ENTRY
    with pytest.raises(UserError, match="USE_TMA"):
        tuned_file.config_at(by_tma, int8, "sm_90")


def test_amd_has_no_tma(tmp_path: Path) -> None:
    layer = replace(LAYER, server="sglang")
    for entry_ in (ENTRY, {**ENTRY, "USE_TMA": False}):
        assert tuned_file.config_at(written(tmp_path, {"1": entry_}), layer, "gfx942").options() == ENTRY
    with pytest.raises(UserError, match="USE_TMA"):
        tuned_file.config_at(written(tmp_path, {"1": {**ENTRY, "USE_TMA": True}}), layer, "gfx942")


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ([], "no tuned file"),
        ({}, "no entry"),
        ({"one": ENTRY}, "'one'"),
        ({"1": 5}, "5"),
        ({"1": {**ENTRY, "BLOCK_SIZE_N": "64"}}, "BLOCK_SIZE_N"),
        ({"1": {**ENTRY, "USE_TMA": True}}, "has true for USE_TMA under '1', by which bf16 is not tuned"),
        ({"1": {**ENTRY, "USE_TMA": 1}}, "USE_TMA"),
    ],
)
def test_other_files_are_refused(body: Any, told: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=told):
        tuned_file.config_at(written(tmp_path, body), LAYER, "sm_90")

"""What a row has beside its winner, for a consumer whose kernel is not the winner's and that has no default."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from export_samples import Judge, collected, edited, export, side, with_table
from samples import config

from gemm_tuner.core.records import Verified
from gemm_tuner.export.trust import Trust

PLAIN = {"BLOCK_SIZE_M": 64, "BLOCK_SIZE_N": 32, "BLOCK_SIZE_K": 128, "GROUP_SIZE_M": 1, "SPLIT_K": 1, "num_warps": 4}
SERVED = {**PLAIN, "num_stages": 4, "median_us": 14.0, "verified": True, "default_us": 20.0}
SUBSTITUTE = {**PLAIN, "family": "gemm_tile", "num_stages": 3, "median_us": 15.0, "verified": True}
SLOWER = {**SERVED, "median_us": 16.0}
TABLE = config(**{**PLAIN, "num_stages": 5})


def naming(path: Path, out: Path, **beside: Any) -> Path:
    """A copy of results whose rows have this beside their winners, of gemm_split_k, and nothing else."""
    stand_in = {"stand_in": "gemm_tile"} if "served" in beside else {}

    def changed(row: dict[str, Any]) -> dict[str, Any]:
        return {key: row[key] for key in row if key not in ("served", "stand_in")} | stand_in | beside

    return edited(path, out, configs=lambda found: [changed(row) for row in found])


@pytest.mark.parametrize(
    ("beside", "stages"),
    [
        ({"served": {"vllm": SERVED}}, 4),
        ({"substitute": SUBSTITUTE}, 3),
        ({"served": {"vllm": SERVED}, "substitute": SUBSTITUTE}, 4),
        ({"served": {"vllm": SLOWER}, "substitute": SUBSTITUTE}, 3),
        ({"served": {"vllm": {**SERVED, "kept_from": "2026-11-23T14:37:33.167272Z"}}, "substitute": SUBSTITUTE}, 3),
        ({"served": {"vllm": {**SERVED, "verified": False}}, "substitute": SUBSTITUTE}, 3),
        ({"substitute": {**SUBSTITUTE, "family": "gemm_split_k", "SPLIT_K": 2}}, None),
        ({"served": {"vllm": {**SERVED, "kernel": "vllm 0.1, sha256 0"}}}, None),
        ({"served": {"vllm": {**SERVED, "verified": False}}}, None),
        ({"substitute": {**SUBSTITUTE, "verified": "interpreted"}}, None),
    ],
)
@pytest.mark.parametrize("flags", [[], ["--unverified", "--predicted"]])
def test_where_no_table_is_left_the_fastest_is_taken_that_a_gpu_has_checked(
    beside: dict[str, Any], stages: int | None, flags: list[str], tmp_path: Path
) -> None:
    """In this package's kernel, and in the row's own finals before those of an earlier run."""
    found = naming(with_table(tmp_path / "run"), tmp_path / "tuned.yaml", **beside)
    assert export(found, "--to", "triton", "-o", tmp_path / "out", *flags) == (1 if stages is None else 0)
    if stages is not None:
        (entry,) = json.loads((tmp_path / "out" / "triton_configs.json").read_text()).values()
        assert (entry["num_stages"], entry["kwargs"]["BLOCK_SIZE_N"]) == (stages, 32)
        (note,) = next(iter(side(tmp_path / "out")["files"].values())).values()
        us = 15.0 if stages == 3 else 14.0
        assert (note["kind"], note["stage"], note["time_us"], note["verified"]) == ("from_table", "finals", us, True)


@pytest.mark.parametrize("to", ["vllm", "sglang"])
def test_a_server_keeps_its_default_which_may_be_faster(to: str, tmp_path: Path) -> None:
    found = naming(with_table(tmp_path / "run"), tmp_path / "tuned.yaml", substitute=SUBSTITUTE)
    assert export(found, "--to", to, "-o", tmp_path / "out") == 1


@pytest.mark.parametrize(
    ("judge", "trust", "taken"),
    [
        (Judge(Verified.TRUE, TABLE), Trust(), (5, Verified.TRUE)),  # faster, and right
        (Judge(Verified.TRUE), Trust(), None),  # what has just been found wrong may be the row's
        (Judge(Verified.INTERPRETED, TABLE), Trust(), (3, Verified.TRUE)),
        (Judge(Verified.INTERPRETED, TABLE), Trust(predicted=True), (3, Verified.TRUE)),
        (Judge(Verified.INTERPRETED), Trust(unverified=True), (3, Verified.TRUE)),
    ],
)
def test_it_is_taken_where_no_gpu_can_check_the_best_of_the_table(
    judge: Judge, trust: Trust, taken: tuple[int, Verified] | None, tmp_path: Path
) -> None:
    table = with_table(tmp_path, (TABLE, 12.0, 12.0))
    path = naming(table, table, substitute=SUBSTITUTE)
    found, left_out = collected(path, "triton", trust, lambda: judge)
    assert [(one.config.num_stages, one.verified) for one in found] == ([taken] if taken else [])
    assert all(one.tuned.startswith("gemm_split_k") and one.tuned_us == 12.7 for one in found)
    assert all(one.config.name in one.timings for one in found)
    assert len(left_out) == (taken is None)

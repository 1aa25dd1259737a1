"""serve-check says what the consumer's own look-up gives, what it costs, and which files are never read."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from consumer_look_ups import aiter, sglang, vllm
from export_samples import AITER, DEFAULT, FILE, H20, MI300X, VLLM, edited, export, rows, with_table
from samples import config
from screens import Screen

from gemm_tuner.cli import main as cli
from gemm_tuner.cli.commands.serve_check import print_answer
from gemm_tuner.consumers import SERVED
from gemm_tuner.consumers.consumer import SizeFile
from gemm_tuner.export import serve
from gemm_tuner.gemm.config import CONFIG_FIELDS, KernelConfig
from gemm_tuner.measure.device import Machine

SIZES = (1, 3, 20, 28, 56, 57, 72, 163, 164, 165, 1280, 1281, 1792, 5000, 100000)


def serve_check(capsys: Any, *words: object) -> tuple[int, dict[str, Any]]:
    """Exit status and the JSON document."""
    capsys.readouterr()
    status = cli.main(["serve-check", *map(str, words), "--json"])
    out = capsys.readouterr().out
    return status, json.loads(out) if out else {}


def answer(document: dict[str, Any], label: str) -> dict[str, Any]:
    found: dict[str, Any] = next(one for one in document["files"] if one["label"].startswith(label))
    return found


@pytest.mark.parametrize("look_up", [vllm, sglang])
def test_nearest_m_readers_are_told_the_same_as_by_their_documented_rule(
    look_up: Any, tmp_path: Path, capsys: Any
) -> None:
    export(H20, "--to", look_up.__name__, "-o", tmp_path)
    asked = ",".join(map(str, SIZES))
    status, document = serve_check(capsys, tmp_path, "--as", look_up.__name__, "--m", asked)
    assert status == 0
    for n, k in ((7168, 2048), (4096, 7168)):
        servings = answer(document, f"N={n},K={k},NVIDIA_H20")["servings"]
        assert [one["m"] for one in servings] == list(SIZES)
        for one in servings:
            assert one["config"] == look_up(tmp_path, "NVIDIA H20", n, k, one["m"])


def test_aiters_buckets_are_told_as_by_its_documented_rule(tmp_path: Path, capsys: Any) -> None:
    (tmp_path / AITER / "gemm").mkdir(parents=True)
    for family in ("GEMM-A8W8_BLOCKSCALE", "GEMM-A8W8", "GEMM-A16W16"):
        (tmp_path / AITER / "gemm" / f"gfx942-{family}.json").write_text('{"any": {"BLOCK_SIZE_M": 64}}')
    export(MI300X, "--to", "aiter", "-o", tmp_path)
    status, document = serve_check(capsys, tmp_path, "--as", "aiter", "--m", ",".join(map(str, SIZES)))
    assert (status, len(document["files"])) == (0, 3)
    for family, n, k in (("GEMM-A8W8_BLOCKSCALE", 7168, 2048), ("GEMM-A16W16", 4096, 4096)):
        for one in answer(document, f"gfx942-{family}-N={n}")["servings"]:
            assert one["config"] == aiter(tmp_path, "gfx942", family, n, k, one["m"])[0]


def test_without_sizes_the_grid_and_the_tuned_sizes_are_asked_for(tmp_path: Path, capsys: Any) -> None:
    export(H20, "--to", "vllm", "-o", tmp_path)
    _, document = serve_check(capsys, tmp_path, "--as", "vllm")
    servings = {one["m"]: one for one in answer(document, "N=7168")["servings"]}
    assert len(servings) == 19
    assert (servings[200]["key"], servings[200]["kind"], servings[200]["cost_pct"]) == ("200", "tuned", 0.0)
    assert (servings[1024]["kind"], servings[1024]["cost_pct"]) == ("default", None)


def test_the_cost_of_a_stand_in_for_a_winner_of_another_family_is_told(
    tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gemm_tuner.measure.device.look", lambda: Machine((), {}, ""))
    results = with_table(tmp_path, (config(BLOCK_SIZE_M=64, BLOCK_SIZE_K=128), 14.0, 13.97))
    export(results, "--to", "vllm", "-o", tmp_path, "--unverified")
    _, document = serve_check(capsys, tmp_path, "--as", "vllm", "--m", "64")
    one = answer(document, "N=4096")["servings"][0]
    assert (one["kind"], one["time_us"], one["tuned_us"]) == ("from_table", 13.97, 12.7)
    assert one["cost_pct"] == pytest.approx(10.0)


def test_an_entry_that_was_edited_is_unknown_and_has_no_cost(tmp_path: Path, capsys: Any) -> None:
    export(H20, "--to", "vllm", "-o", tmp_path)
    body = json.loads((tmp_path / FILE).read_text())
    body["64"]["num_stages"] = 6
    (tmp_path / FILE).write_text(json.dumps(body))
    _, document = serve_check(capsys, tmp_path, "--as", "vllm", "--m", "64")
    one = answer(document, "N=7168")["servings"][0]
    assert (one["config"]["num_stages"], one["kind"], one["cost_pct"]) == (6, "", None)


def test_keys_that_tie_go_to_the_first_in_the_file(tmp_path: Path, capsys: Any) -> None:
    first, second = {"BLOCK_SIZE_M": 1}, {"BLOCK_SIZE_M": 2}
    (tmp_path / FILE.name).write_text(json.dumps({"96": first, "64": second}))
    _, document = serve_check(capsys, tmp_path, "--as", "vllm", "--m", "80,79")
    assert [one["key"] for one in document["files"][0]["servings"]] == ["96", "64"]


@pytest.mark.parametrize("text", ["[]", "{", '{"triton_version": {}, "64": {}}', "{}", '{"64": null}'])
def test_a_file_at_which_the_loader_stops_is_exit_status_1(text: str, tmp_path: Path, capsys: Any) -> None:
    (tmp_path / FILE.name).write_text(text)
    status, document = serve_check(capsys, tmp_path, "--as", "vllm")
    assert status == 1
    assert document["files"][0]["fault"]
    assert cli.main(["serve-check", str(tmp_path), "--as", "vllm"]) == 1


def test_a_file_under_a_name_that_is_never_asked_for_is_named(tmp_path: Path, capsys: Any) -> None:
    export(H20, "--to", "vllm", "-o", tmp_path)
    spaced = FILE.name.replace("[128,128]", "[128, 128]")
    (tmp_path / VLLM / spaced).write_text("{}")
    status, document = serve_check(capsys, tmp_path, "--as", "vllm")
    assert status == 1
    assert spaced in document["not_read"][0]
    assert len(document["files"]) == 2


def test_an_aiter_file_in_the_layout_that_is_not_read_is_named(tmp_path: Path, capsys: Any) -> None:
    export(MI300X, "--to", "aiter", "-o", tmp_path)
    (tmp_path / AITER / "gemm/gfx942-GEMM-A8W8_BLOCKSCALE.json").write_text("{}")
    status, document = serve_check(capsys, tmp_path, "--as", "aiter")
    assert status == 1
    assert ["gemm_a8w8_blockscale/GEMM-A8W8_BLOCKSCALE" in one for one in document["not_read"]] == [True]
    assert answer(document, "gfx942-GEMM-A8W8-")["remark"]


def test_an_aiter_bucket_that_is_missing_stops_the_loader(tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "gemm").mkdir()
    (tmp_path / "gemm/gfx942-GEMM-A16W16-N=64-K=64.json").write_text('{"M_LEQ_16": {}, "M_GEQ_256": {}}')
    status, document = serve_check(capsys, tmp_path, "--as", "aiter", "--m", "16,300,100")
    assert status == 1
    assert "M=100" in document["files"][0]["fault"]
    assert [one["key"] for one in document["files"][0]["servings"]] == ["M_LEQ_16", "M_GEQ_256"]


def test_an_empty_folder_and_odd_sizes_are_refused(tmp_path: Path, capsys: Any) -> None:
    assert cli.main(["serve-check", str(tmp_path), "--as", "vllm"]) == 2
    assert "no file that vllm would read" in capsys.readouterr().err
    for sizes in ("0", "a", "1,,2"):
        assert cli.main(["serve-check", str(tmp_path), "--as", "vllm", "--m", sizes]) == 2


@pytest.mark.parametrize(("results", "consumer"), [(H20, "vllm"), (H20, "sglang"), (MI300X, "aiter")])
def test_the_table_has_a_line_an_m(results: Path, consumer: str, tmp_path: Path) -> None:
    if consumer == "aiter":
        (tmp_path / AITER / "gemm").mkdir(parents=True)
        (tmp_path / AITER / "gemm/gfx942-GEMM-A8W8.json").write_text('{"any": {"BLOCK_SIZE_M": 64}}')
    export(results, "--to", consumer, "-o", tmp_path)
    answers, _ = serve.check(SERVED[consumer], tmp_path, SIZES)
    for answer, width in ((answer, width) for answer in answers for width in (80, 120, 0)):
        screen = Screen(width)
        print_answer(screen.console, answer)
        assert not width or max(map(len, screen.lines)) <= width
        rows_ = [line.split() for line in screen.lines if re.match(r" *\d+ ", line)]
        assert [row[:2] for row in rows_] == [[str(one.m), one.key] for one in answer.servings]
        for row, one in zip(rows_, answer.servings, strict=True):
            blocks = [str(one.config.get(f"BLOCK_SIZE_{axis}")) for axis in "MNK"]
            assert not width or "None" in blocks or "x".join(blocks) in row
            assert width or all(f"{key}={value}" in row for key, value in one.config.items())
            assert one.time_us is None or f"{one.time_us:.2f}" in row


def answer_of(*servings: serve.Serving) -> list[str]:
    screen = Screen(80)
    print_answer(screen.console, serve.Answer(SizeFile(Path("f.json"), "f"), servings))
    return [" ".join(line.split()) for line in screen.lines]


def test_the_default_is_compared_with_what_is_served() -> None:
    served = serve.Serving(64, "64", DEFAULT, "tuned", time_us=10.0, tuned_us=8.0, default_us=15.0)
    _, *heading, row = answer_of(served)
    assert row.endswith("tuned 10.00 8.00 1.500")
    words = " ".join(heading).split()
    assert "tuned" not in words and {"best", "default", "us"} <= set(words)


def test_what_never_ran_is_called_predicted_and_not_tuned(tmp_path: Path) -> None:
    export(H20, "--to", "vllm", "-o", tmp_path, "--predicted")
    answers, _ = serve.check(SERVED["vllm"], tmp_path, (256,))
    (one,) = (one for answer in answers for one in answer.servings if "N=4096" in answer.file.label)
    (*_, row) = (line.split() for line in answer_of(one))
    assert "predicted" in row and "tuned" not in row and "-" not in row


def test_a_bucket_costs_at_its_smaller_size_what_the_run_took_there(tmp_path: Path, capsys: Any) -> None:
    """24 and 32 share a bucket, which is tuned at 32; the run's table of 24 has the config of 32."""
    by_m = {row["M"]: row for row in rows(MI300X) if row["M"] in (1, 24, 32)}
    results = edited(MI300X, tmp_path / "tuned.yaml", configs=lambda found: list(by_m.values()))
    fields = {m: {key: value for key, value in row.items() if key in CONFIG_FIELDS} for m, row in by_m.items()}
    at_24, at_32 = (KernelConfig(**fields[m]) for m in (24, 32))
    table = [
        {"name": one.name, "status": "ok", **one.to_dict(), "screen_us": us, "finals_us": None}
        for one, us in ((at_24, 9.1), (at_32, 9.9))
    ]
    key = "24x7168x2048_fp8_e4m3_fnuz_fp8_e4m3_fnuz_bf16_nt_scale_block"
    (tmp_path / "configs").mkdir()
    pd.DataFrame(table).to_csv(tmp_path / "configs" / f"{key}.csv.gz", index=False)
    export(results, "--to", "aiter", "-o", tmp_path)
    _, document = serve_check(capsys, tmp_path, "--as", "aiter", "--m", "24,32,28")
    served = document["files"][0]["servings"]
    assert [one["key"] for one in served] == ["M_LEQ_32"] * 3
    assert [one["tuned_us"] for one in served] == [9.0, 9.5, None]
    assert [one["cost_pct"] and round(one["cost_pct"]) for one in served] == [10, 0, None]

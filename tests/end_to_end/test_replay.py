"""The whole measured way without a GPU: a run recorded on an H200 under nsys stands for GPU and profiler."""

from __future__ import annotations

import json
import re
import shutil
import time
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml
from samples import ROOT, config, device
from tuning import run_options

from gemm_tuner.cli.main import main
from gemm_tuner.gemm.problem import GemmProblem, Layout
from gemm_tuner.measure import replay as recordings
from gemm_tuner.measure.replay import in_order
from gemm_tuner.pipeline import prepare, serving_space
from gemm_tuner.report import data
from gemm_tuner.store import results

RECORDING = Path(__file__).resolve().parents[1] / "data" / "h200_nsys_recording"
# The rules of the day it was recorded: others would ask for configurations that nobody timed.
TUNED = ROOT / "results" / "tuned"
ARGUMENTS = [
    *("--gemm_size_file", str(RECORDING / "sizes.yaml"), "--compare", "--search", "full"),
    *("--space", str(RECORDING / "space.yaml"), "--rules", str(RECORDING / "rules")),
]


def replay(raw: Path, tmp_path: Path, *more: str) -> int:
    where = ["--profiler", "replay", "--replay", str(raw), "--o", str(tmp_path / "tuned.yaml")]
    return main([*ARGUMENTS, *where, "--output_dir", str(tmp_path / "runs"), *more])


def rows(path: Path) -> list[dict[str, object]]:
    return [{**row.facts, "m": row.problem.m, "config": row.config} for row in results.read(path).rows]


def test_replay_comes_to_the_recorded_choice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    status = replay(RECORDING / "raw", tmp_path, "--init_type", "zeros", "--seed", "7", "--rotating_tensor", "512")
    printed = capfd.readouterr()
    assert status == 0, printed.err
    recorded, replayed = rows(RECORDING / "tuned.yaml"), rows(tmp_path / "tuned.yaml")
    assert len(recorded) == len(replayed) == 3
    for old, new in zip(recorded, replayed, strict=True):
        assert new["source"] == "replayed" and old["source"] == "measured"
        # What a tie is has changed since the recording; and of configurations with the same code one is timed.
        told_anew = ("source", "tie", "runner_up", "gap_pct", "processes", "vendor_us", "summed_us", "vendor_summed_us")
        # The recording is from before there were spans: times of several kernels are their sums.
        for us, summed_us in (("median_us", "summed_us"), ("vendor_us", "vendor_summed_us")):
            assert new.get(summed_us, new[us]) == pytest.approx(new[us], rel=1e-3)
        # Recorded as a median of samples; since then what shifts a whole round is taken off.
        assert new["vendor_us"] == pytest.approx(old["vendor_us"], rel=1e-3)
        assert new["processes"] == 1 and "process_spread_pct" not in new
        assert {k: v for k, v in new.items() if k not in told_anew} == {
            k: v for k, v in old.items() if k not in told_anew
        }
    assert "0 compiled under the profiler" in printed.err
    (run,) = (path for path in (tmp_path / "runs").iterdir() if path.name != "generated")
    assert f"to look at it: tune_gemm.py report {run}\n" in printed.err
    assert replay(RECORDING / "raw", tmp_path, "--init_type", "zeros", "--seed", "7", "--rotating_tensor", "512") == 0
    again = capfd.readouterr().err
    assert "this run is finished: 3 of 3 sizes have a verified configuration, replayed 20" in again
    old_header, new_header = (results.read(path).header for path in (RECORDING / "tuned.yaml", tmp_path / "tuned.yaml"))
    assert all(old_header[key] == new_header[key] for key in ("init_type", "seed", "l2", "device", "triton", "driver"))
    for path in (tmp_path / "runs").glob("*/configs/*.csv.gz"):
        table = pd.read_csv(path)
        assert table["status"].notna().all() and len(table) == table["name"].nunique()
        assert (table.loc[table["status"] == "ok", "screen_us"] > 0).all()


def in_processes(raw: Path, factors: list[float]) -> None:
    """The recorded process of finals as several, of which each ran all kernels slower by a factor of its own."""
    first = raw / "01-finals"
    for process, factor in enumerate(factors):
        where = raw / f"{10 + process}-finals"
        shutil.copytree(first, where)
        plan = json.loads((where / "start00" / "plan.json").read_text())
        (where / "start00" / "plan.json").write_text(json.dumps({**plan, "process": process}))
        trace = where / "start00" / "trace_cuda_gpu_trace.csv"
        table = pd.read_csv(trace)
        table["Duration (ns)"] = (table["Duration (ns)"] * factor).round().astype(int)
        table.to_csv(trace, index=False)
    shutil.rmtree(first)


def test_a_recording_of_several_processes_is_played_back_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    raw = tmp_path / "raw"
    shutil.copytree(RECORDING / "raw", raw)
    in_processes(raw, [1.0, 1.02, 1.04, 1.06, 1.08])
    once, several = (tmp_path / name for name in ("once", "several"))
    for folder, recording in ((once, RECORDING / "raw"), (several, raw)):
        folder.mkdir()
        assert replay(recording, folder, "--no_compile_stage") == 0
    before, report = (data.load(next((folder / "runs").glob("2*"))) for folder in (once, several))
    for one, size, row in zip(before.sizes, report.sizes, rows(several / "tuned.yaml"), strict=True):
        assert (row["processes"], row["process_spread_pct"]) == (5, pytest.approx(8.0, abs=0.1))
        ours = next(final for final in one.record.finals if final.name == size.record.chosen)
        # The second and the fourth publish.
        assert row["median_us"] == pytest.approx(ours.time_us * (1.02 * 1.06) ** 0.5, rel=2e-3)
        assert row["samples"] == 2 * len(ours.samples_us)
        # The page and the results file give the same figures.
        assert size.time_us == pytest.approx(row["median_us"], abs=6e-4)
        assert size.vendor_ratio == pytest.approx(row["vendor_ratio"], abs=6e-4)
        assert size.ours is not None and size.ours.interval_us is not None


def test_launchers_start_before_the_space_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    events: list[str] = []
    prepare_, cut_sizes = recordings.ReplayLauncher.prepare, serving_space.cut_sizes

    def prepared(launcher: recordings.ReplayLauncher) -> None:
        events.append("launchers")
        prepare_(launcher)

    def cut(*of: Any) -> Any:
        events.append("rules")
        return cut_sizes(*of)

    monkeypatch.setattr(recordings.ReplayLauncher, "prepare", prepared)
    monkeypatch.setattr(serving_space, "cut_sizes", cut)
    assert replay(RECORDING / "raw", tmp_path, "--no_compile_stage") == 0
    assert events[:2] == ["launchers", "rules"]


def test_the_time_breakdown_accounts_for_the_whole_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    began = time.monotonic()
    assert replay(RECORDING / "raw", tmp_path, "--no_compile_stage", "--time_breakdown") == 0
    took_s, printed = time.monotonic() - began, capfd.readouterr()
    _, _, table = printed.out.partition("Time per stage")
    lines = (line.rpartition(" ") for line in table.strip().splitlines()[1:])
    found = {name.strip(): float(seconds) for name, _, seconds in lines}
    parts = {name: seconds for name, seconds in found.items() if name.startswith("- ")}
    rounding_s = 0.05 * len(found) + 1e-6
    span = "from first screening to last verdict"
    stages = found.keys() - parts.keys() - {"in all", "outside the stages", span}
    assert stages >= {"write scripts", "search", "screen", "finals", "check", "write tables"}
    assert sum(found[name] for name in (*stages, "outside the stages")) == pytest.approx(
        found["in all"], abs=rounding_s
    )
    assert sum(parts.values()) <= found["outside the stages"] + rounding_s
    assert found["screen"] + found["finals"] <= found[span] + rounding_s <= found["in all"] + 2 * rounding_s
    until_summary_s = float(re.findall(r" in ([\d.]+) s \(", printed.err)[-1])
    assert until_summary_s - rounding_s <= found["in all"] <= took_s + rounding_s


def test_a_config_absent_from_the_trace_has_no_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    winner = str(rows(RECORDING / "tuned.yaml")[0]["name"])
    raw = tmp_path / "raw"
    shutil.copytree(RECORDING / "raw", raw)
    for trace in raw.glob("*/start*/trace_cuda_gpu_trace.csv"):
        lines = trace.read_text().splitlines(keepends=True)
        trace.write_text("".join(line for line in lines if not line.endswith(f",{winner}\n")))
    assert replay(raw, tmp_path, "--no_warmup") == 0, capfd.readouterr().err
    first = rows(tmp_path / "tuned.yaml")[0]
    assert first["name"] != winner
    (path,) = (tmp_path / "runs").glob("*/configs/256x*.csv.gz")
    row = pd.read_csv(path).set_index("name").loc[winner]
    assert row["status"] == "missing_in_trace" and pd.isna(row["screen_us"])
    assert "the trace has 0 calls" in row["message"]


def test_a_wrong_winner_gives_way_to_the_next_best(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    before = rows(RECORDING / "tuned.yaml")[0]
    raw = tmp_path / "raw"
    shutil.copytree(RECORDING / "raw", raw)
    for journal in raw.glob("*-verify/start*/journal.jsonl"):
        lines = journal.read_text().splitlines(keepends=True)
        spoilt = [
            line.replace('"ok": true', '"ok": false') if f'"name": "{before["name"]}"' in line else line
            for line in lines
        ]
        journal.write_text("".join(spoilt))
    assert replay(raw, tmp_path, "--no_warmup") == 0, capfd.readouterr().err
    after = rows(tmp_path / "tuned.yaml")[0]
    assert after["name"] == before["runner_up"]
    (path,) = (tmp_path / "runs").glob("*/configs/256x*.csv.gz")
    assert pd.read_csv(path).set_index("name").loc[str(before["name"]), "status"] == "wrong"


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda trace: trace.write_text(""), "no kernels recorded"),
        (lambda trace: trace.unlink(), "no such file"),
        (lambda trace: trace.write_text(trace.read_text()[:-20]), "trace_cuda_gpu_trace.csv"),
    ],
    ids=["empty", "missing", "cut off"],
)
def test_a_damaged_trace_ends_the_run_with_one_line(
    damage: object, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    raw = tmp_path / "raw"
    shutil.copytree(RECORDING / "raw", raw)
    damage(next(raw.glob("00-screen/start*/trace_cuda_gpu_trace.csv")))  # type: ignore[operator]
    assert replay(raw, tmp_path, "--no_warmup") == 3
    last = capfd.readouterr().err.strip().splitlines()[-1]
    assert last.startswith("tune_gemm.py: ") and words in last
    assert not (tmp_path / "tuned.yaml").exists()


def test_a_replay_counts_what_it_plays_and_no_profiler_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert replay(RECORDING / "raw", tmp_path, "--no_compile_stage") == 0
    printed = capfd.readouterr().err
    counters = re.findall(r"^(\w[\w ]*): (\d+)/(\d+) in", printed, re.MULTILINE)
    assert {"finals"} <= {title for title, _, _ in counters}
    assert [one for one in counters if one[1] != one[2]] == []
    assert not re.search(r"[1-9]\d* profiler starts", printed)


def made_with(raw: Path, told: str) -> Path:
    path = raw / "recording.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "made_with": told}))
    return raw


OTHER_RUNS = {
    "another space": (
        ["--gemm_size_file", str(RECORDING / "sizes.yaml")],
        ["none of the", "256x256x512_bf16_nn"],
    ),
    "another size": (
        ["-m", "48", "-n", "64", "-k", "64"],
        ["holds no 48x64x64_bf16_nn", "accepted: 16x1024x4096"],
    ),
    "several other sizes": (
        ["--gemm_size_file", str(ROOT / "examples" / "sizes.yaml")],
        ["holds no 512x512x512_bf16_nn, 256x1024x512", "16x1024x4096_bf16_nn"],
    ),
    "another architecture": (
        ["--gemm_size_file", str(RECORDING / "sizes.yaml"), "--arch", "gfx942"],
        ["--arch", "the recording is of sm_90"],
    ),
    "given sizes": (
        ["--gemm_size_file", str(TUNED / "nvidia_h200_bf16.yaml"), "--benchmark"],
        ["holds no ", "accepted: ", "16x1024x4096_bf16_nn"],
    ),
    "given sizes to check": (
        ["--gemm_size_file", str(TUNED / "nvidia_h200_bf16.yaml"), "--compare_wo_tuning"],
        ["holds no ", "accepted: ", "16x1024x4096_bf16_nn"],
    ),
    "another type": (["-m", "256", "-n", "256", "-k", "512", "--dtype", "fp16"], ["holds no 256x256x512_fp16_nn"]),
}


@pytest.mark.parametrize(("words", "told"), OTHER_RUNS.values(), ids=list(OTHER_RUNS))
def test_a_recording_of_something_else_is_refused_before_anything_is_compiled(
    words: list[str],
    told: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(RECORDING / "raw", tmp_path / "raw")
    raw = made_with(tmp_path / "raw", "--space mine.yaml --search full")
    assert main([*words, "--profiler", "replay", "--replay", str(raw)]) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert [word for word in told if word not in line] == []
    assert ("made with --space mine.yaml --search full" in line) == ("none of the" in line)
    assert [path.name for path in tmp_path.iterdir()] == ["raw"]


@pytest.mark.parametrize(("task", "what"), [("--benchmark", "finals"), ("--compare_wo_tuning", "check")])
def test_given_configurations_that_were_not_recorded_are_named(
    task: str, what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The recording has another configuration of the same size."""
    monkeypatch.chdir(tmp_path)
    other = config(BLOCK_SIZE_M=16, num_stages=6)
    given = {"M": 256, "N": 256, "K": 512, "family": other.family, **other.options()}
    (tmp_path / "sizes.yaml").write_text(yaml.safe_dump([given]))
    words = ["--gemm_size_file", "sizes.yaml", task, "--profiler", "replay", "--replay", str(RECORDING / "raw")]
    assert main(words) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert f"holds no {what} of {other.name} at 256x256x512_bf16_nn" in line
    assert [path.name for path in tmp_path.iterdir()] == ["sizes.yaml"]


def test_a_replay_for_a_server_of_a_recording_without_it_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The recording holds a configuration of the size's own space, and none that vLLM's kernel can launch."""
    monkeypatch.chdir(tmp_path)
    size = GemmProblem(256, 256, 512, "fp8_e4m3", "fp8_e4m3", "bf16", Layout.ROW, Layout.COL, scaling="block")
    space = prepare.load_space(run_options(tmp_path, size), device("sm_90"))
    names = space.names_of(prepare.cut_space(space, size, device("sm_90")).kept).tolist()
    persistent = next(name for name in names if name.startswith("gemm_persistent"))
    shutil.copytree(RECORDING / "raw", "raw")
    for path in Path("raw").glob("*/start*/plan.json"):
        plan = json.loads(path.read_text())
        plan["work"] = [{**plan["work"][0], "problem": size.to_dict(), "entries": [[0, persistent]]}]
        path.write_text(json.dumps(plan))
    words = ["-m", "256", "-n", "256", "-k", "512", "--dtype", "fp8_e4m3", "--scaling", "block", "--layout_b", "col"]
    assert main([*words, "--profiler", "replay", "--replay", "raw", "--serve", "vllm"]) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert "configurations that vllm could launch of 256x256x512" in line


def test_the_files_that_a_recording_was_made_with_are_named_as_they_lie_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    given = ["--gemm_size_file", str(RECORDING / "sizes.yaml"), "--profiler", "replay"]
    assert main([*given, "--replay", str(RECORDING / "raw")]) == 2
    line = capfd.readouterr().err
    assert f"--space {RECORDING / 'space.yaml'} --rules {RECORDING / 'rules'} --search full" in line


def test_a_recording_is_found_in_its_runs_folder(tmp_path: Path) -> None:
    assert recordings.load(RECORDING).folder == RECORDING / "raw"


def test_no_recording_is_one_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert replay(tmp_path, tmp_path) == 2
    assert "is no recording" in capfd.readouterr().err


def test_stages_are_played_in_the_order_of_their_numbers() -> None:
    folders = ("100-finals/start00", "11-finals/start01", "11-finals/start00", "2-screen/start00")
    plans = sorted((Path("raw") / folder / "plan.json" for folder in folders), key=in_order)
    assert [str(path.parent.relative_to("raw")) for path in plans] == [
        *("2-screen/start00", "11-finals/start00", "11-finals/start01", "100-finals/start00")
    ]

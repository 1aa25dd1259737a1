"""No row of a results file is lost, wherever a run that rewrites it is killed.

``make test`` kills at three moments, and at a fourth one below, ``make test-all`` at all of MOMENTS.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from gemm_tuner.cli.main import main
from gemm_tuner.core.errors import EXIT_BUG
from gemm_tuner.core.records import Verified
from gemm_tuner.gemm.problem import GemmProblem
from gemm_tuner.store import results

ROOT = Path(__file__).resolve().parents[2]
RECORDING = ROOT / "tests" / "data" / "h200_nsys_recording"
# Ends the process without a word before or after the Nth call of one function of the tuner.
KILLED = """
import importlib, os, sys
from gemm_tuner.cli.main import main

where, nth, when, *words = sys.argv[1:]
module, _, name = where.rpartition(":")
owner = importlib.import_module(module)
*path, last = name.split(".")
for part in path:
    owner = getattr(owner, part)
real, left = getattr(owner, last), [int(nth)]

def dies(*given, **named):
    left[0] -= 1
    if when == "before" and left[0] == 0:
        os._exit(9)
    found = real(*given, **named)
    if when == "after" and left[0] == 0:
        os._exit(9)
    return found

setattr(owner, last, dies)
sys.exit(main(words))
"""
MOMENTS = [
    ("gemm_tuner.pipeline.run_results:RunResults.record", 1, "after"),
    ("gemm_tuner.pipeline.run_results:RunResults.record", 2, "after"),
    ("gemm_tuner.store.results_file:results.write_rows", 1, "before"),
    ("os:fsync", 1, "after"),
    *[("os:replace", nth, when) for nth in (1, 2) for when in ("before", "after")],
    ("gemm_tuner.store.run_record:write", 1, "before"),
    ("gemm_tuner.store.run_folder:RunFolder.tidy", 1, "before"),
    ("gemm_tuner.store.store:Store.record_outcome", 2, "after"),
]
SAMPLE = (2, 5, 8)


@pytest.fixture
def tuned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The recorded rows and one of a size that the run does not tune, in a folder of their own."""
    monkeypatch.chdir(tmp_path)
    document = yaml.safe_load((RECORDING / "tuned.yaml").read_text())
    document["configs"].append({**document["configs"][0], "M": 333})
    path = tmp_path / "tuned.yaml"
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    return path


def words(path: Path, *more: str) -> list[str]:
    return [
        *("--gemm_size_file", str(RECORDING / "sizes.yaml"), "--search", "full", "--output_dir", "runs", *more),
        *("--space", str(RECORDING / "space.yaml"), "--rules", str(RECORDING / "rules"), "--no_warmup"),
        *("--profiler", "replay", "--replay", str(RECORDING / "raw"), "--o", str(path)),
    ]


def runs(path: Path) -> list[Path]:
    """The folders of the runs that were begun beside a results file."""
    return [store.parent for store in (path.parent / "runs").glob("*/run.sqlite")]


def run_killed(moment: tuple[str, int, str], arguments: list[str]) -> int:
    where, nth, when = moment
    (script := Path("killed.py")).write_text(KILLED)
    command = [sys.executable, str(script), where, str(nth), when, *arguments]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, env=env, capture_output=True).returncode


def rows_of(path: Path) -> dict[GemmProblem, str]:
    return {row.problem: row.config.name for row in results.read(path).rows if row.config}


@pytest.mark.parametrize(
    "moment",
    [
        pytest.param(
            moment,
            id=f"{moment[0].rpartition('.')[2]}-{moment[1]}-{moment[2]}",
            marks=[] if number in SAMPLE else [pytest.mark.grid],
        )
        for number, moment in enumerate(MOMENTS)
    ],
)
def test_a_kill_leaves_every_row_and_the_command_goes_on(moment: tuple[str, int, str], tuned: Path) -> None:
    before = rows_of(tuned)
    update = words(tuned, "--update", str(tuned))
    assert run_killed(moment, update) == 9
    between = rows_of(tuned)
    assert set(between) == set(before) and len(results.read(tuned).rows) == 4
    assert main(update) == 0
    after = results.read(tuned)
    assert set(rows_of(tuned)) == set(before) and len(after.rows) == 4
    assert [row.facts["source"] for row in after.rows] == ["replayed"] * 3 + ["measured"]
    assert [row.facts.get("kept_from") for row in after.rows][:3] == [None] * 3
    (run,) = runs(tuned)
    assert main(update) == 0 and [run] == runs(tuned)  # finished, not tuned again


def test_a_run_that_goes_on_says_so_first(tuned: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run_killed(("gemm_tuner.store.store:Store.record_outcome", 2, "after"), words(tuned)) == 9
    (run,) = runs(tuned)
    assert main(words(tuned)) == 0
    assert capfd.readouterr().err.splitlines()[0] == f"going on with runs/{run.name}: 2 of 3 sizes finished"


def test_a_finished_run_writes_its_rows_again_where_they_are_gone(tuned: Path) -> None:
    assert main(words(tuned)) == 0
    before = rows_of(tuned)
    edited(tuned, lambda document: document.update(configs=document["configs"][1:]))  # type: ignore[index]
    assert len(rows_of(tuned)) == 3
    assert main(words(tuned)) == 0
    assert rows_of(tuned) == before and len(runs(tuned)) == 1


def test_other_sizes_and_a_benchmark_go_into_the_same_file(tuned: Path) -> None:
    """Rows of one run each, and then all of them timed again."""
    path, sizes = tuned.with_name("all.yaml"), yaml.safe_load((RECORDING / "sizes.yaml").read_text())
    for number, size in enumerate(sizes):
        one = tuned.with_name(f"{number}.yaml")
        one.write_text(yaml.safe_dump([size]))
        assert main([*words(path), "--gemm_size_file", str(one)]) == 0
        assert len(rows_of(path)) == number + 1
    before = rows_of(path)
    copy = tuned.with_name("copy.yaml")
    copy.write_text(path.read_text())
    assert main([*words(path), "--gemm_size_file", str(copy), "--benchmark"]) == 0
    assert rows_of(path) == before and len(results.read(path).earlier_headers) == 0


def edited(path: Path, change: Callable[[dict[str, object]], None]) -> None:
    document = yaml.safe_load(path.read_text())
    change(document)
    path.write_text(yaml.safe_dump(document, sort_keys=False))


def test_rows_of_another_gpu_are_not_mixed_in(tuned: Path, capfd: pytest.CaptureFixture[str]) -> None:
    edited(tuned, lambda document: document["header"].update(device="NVIDIA H100"))  # type: ignore[attr-defined]
    text = tuned.read_text()
    assert main(words(tuned)) == 2
    said = capfd.readouterr().err
    assert "NVIDIA H100" in said and "NVIDIA H200" in said and "choose another file" in said
    assert tuned.read_text() == text and not Path("runs").exists()


def test_what_is_no_results_file_is_not_written_over(tuned: Path, capfd: pytest.CaptureFixture[str]) -> None:
    notes = tuned.with_name("notes.yaml")
    for text in ("- {M: 1, N: 1, K: 1}\n", "my notes\n", "format_version: 99\nconfigs: []\n"):
        notes.write_text(text)
        assert main(words(notes)) == 2
        assert "cannot be merged" in capfd.readouterr().err and notes.read_text() == text


def test_a_size_of_which_none_is_right_now_keeps_its_row(tuned: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The exit status says that this run found none."""
    raw = tuned.parent / "raw"
    shutil.copytree(RECORDING / "raw", raw)
    for journal in raw.glob("*-verify/start*/journal.jsonl"):
        journal.write_text(journal.read_text().replace('"ok": true', '"ok": false'))
    before = rows_of(tuned)
    update = words(tuned, "--update", str(tuned))
    update[update.index("--replay") + 1] = str(raw)
    assert main(update) == 1
    said = capfd.readouterr().err
    assert rows_of(tuned) == before and results.read(tuned).without_config == ()
    assert said.count("its earlier row stays") == 3
    rows = results.read(tuned).rows
    assert [row.verified for row in rows] == [Verified.FALSE] * 3 + [Verified.TRUE]
    assert all("wrong" in row.facts["found_wrong"] for row in rows[:3])
    assert main(update) == 1  # the finished run, again


def broken(*_: object, **__: object) -> None:
    raise ZeroDivisionError("no such luck")


def test_a_bug_costs_no_row_and_says_where_its_traceback_is(
    tuned: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("gemm_tuner.decide.choose.measured_choice", broken)
        assert main(words(tuned, "--update", str(tuned))) == EXIT_BUG
        said = capfd.readouterr().err
        (run,) = runs(tuned)
        (kept,) = run.glob("bug-*.txt")
        assert "Traceback" not in said and str(kept) in said.splitlines()[-1]
        assert "ZeroDivisionError: no such luck" in said.splitlines()[-2]
        assert "broken" in kept.read_text() and "Traceback" in kept.read_text()
        assert main(words(tuned, "--update", str(tuned), "--debug")) == EXIT_BUG
        assert "Traceback" in capfd.readouterr().err
    assert len(rows_of(tuned)) == 4
    assert main(words(tuned, "--update", str(tuned))) == 0


def test_a_bug_before_a_run_has_a_folder_is_reported_in_the_temporary_one(
    tuned: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tuned.parent))
    monkeypatch.setattr("gemm_tuner.pipeline.prepare.find_environment", broken)
    assert main(words(tuned)) == EXIT_BUG
    (kept,) = tuned.parent.glob("bug-*.txt")
    assert str(kept) in capfd.readouterr().err


def test_a_finished_run_ends_as_it_ended(tuned: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Where kernels were compiled under the profiler, its exit status was 1, and it is 1 again."""
    from gemm_tuner.pipeline.tune import Tuning

    update = [word for word in words(tuned) if word != "--no_warmup"]
    real = Tuning.run

    def compiling(self: Tuning) -> None:
        real(self)
        self.session.log.count("compiled under the profiler", 2)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Tuning, "run", compiling)
        assert main(update) == 1
    capfd.readouterr()
    assert main(update) == 1
    said = capfd.readouterr().err
    assert "this run is finished" in said and "compiled in the profiled process" in said

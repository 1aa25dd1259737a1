"""Runs of a spec that end early, go on and are decided by finals: real programs, led by files and pipes."""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
import time
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from samples import ROOT

from gemm_tuner.cli.main import main
from gemm_tuner.core.errors import EXIT_ENVIRONMENT, EXIT_INTERRUPTED, EXIT_OK
from gemm_tuner.pipeline import spec_run
from gemm_tuner.system.child_output import MAX_BYTES, run_child

# Prints the next of the times in its file, of which the last stays, and notes that it ran.
NEXT = """\
echo $1 >> ran
read time rest < times_$1
[ -n "$rest" ] && echo "$rest" > times_$1
echo met=$time
"""
SPEC = 'name: t\ncommand: "sh next.sh {T}"\nparams: {T: [a, b, c]}\nmetric: {regex: "met=(.*)"}\n'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "next.sh").write_text(NEXT, encoding="utf-8")
    (tmp_path / "t.yaml").write_text(SPEC, encoding="utf-8")
    return tmp_path


def script_times(folder: Path, **times: str) -> None:
    for name, values in times.items():
        (folder / f"times_{name}").write_text(values + "\n", encoding="utf-8")


def ran(folder: Path) -> str:
    return "".join((folder / "ran").read_text(encoding="utf-8").split())


def table(folder: Path) -> dict[str, dict[str, str]]:
    with (folder / "t.csv").open(encoding="utf-8", newline="") as file:
        return {row["T"]: row for row in csv.DictReader(file)}


def test_finals_decide_by_the_median_of_interleaved_rounds(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """a is the fastest of the screening by chance; c is too slow for the finals."""
    script_times(folder, a="1.0 2.0 2.1 9", b="1.1 1.5 1.4 1.6", c="1.3")
    assert main(["spec", "t.yaml", "--tune", "-o", "t.csv"]) == EXIT_OK
    assert ran(folder) == "abc" + "ab" + "ba" + "ab"
    rows = table(folder)
    assert list(rows) == ["b", "a", "c"]
    assert [rows[name]["met (ms)"] for name in "bac"] == ["1.5", "2.1", "1.3"]
    assert [rows[name]["runs"] for name in "bac"] == ["3", "3", "1"]
    said = capsys.readouterr().out
    assert "top_spec_idx: 1" in said and "tie: the" not in said


def test_finalists_whose_runs_overlap_are_called_a_tie(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script_times(folder, a="1.0 1.1 1.0 1.2", b="1.0 1.15 1.3 1.4", c="2")
    assert main(["spec", "t.yaml", "--tune"]) == EXIT_OK
    said = capsys.readouterr().out
    assert "top_spec_idx: 0" in said and "tie: the runs of 1 overlap" in said and "tie: true" in said


def test_at_most_five_stand_in_the_finals(folder: Path) -> None:
    names = "abcdef"
    script_times(folder, **{name: f"1.0{number}" for number, name in enumerate(names)})
    (folder / "t.yaml").write_text(SPEC.replace("[a, b, c]", str(list(names))), encoding="utf-8")
    assert main(["spec", "t.yaml", "--tune", "--rounds", "1"]) == EXIT_OK
    assert ran(folder) == names + "abcde"


def test_a_finalist_that_fails_in_the_finals_is_not_the_best(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script_times(folder, a="1.0 nan", b="1.1", c="5")
    assert main(["spec", "t.yaml", "--tune", "--rounds", "1"]) == EXIT_OK
    said = capsys.readouterr().out
    assert "top_spec_idx: 1" in said and "wrong: 1 spec (mesh_idx 0)" in said


def test_a_spec_is_repeated_and_its_median_counts(folder: Path) -> None:
    script_times(folder, a="9 1 2", b="3 4 5", c="7 7 8")
    (folder / "t.yaml").write_text(SPEC + "repeat: 3\n", encoding="utf-8")
    assert main(["spec", "t.yaml", "-o", "t.csv"]) == EXIT_OK
    assert {name: row["met (ms)"] for name, row in table(folder).items()} == {"a": "2.0", "b": "4.0", "c": "7.0"}


def test_a_second_start_measures_only_what_is_new(folder: Path) -> None:
    """Another value, another text of a file that the command names, --fresh."""
    script_times(folder, a="1", b="2", c="3", d="4")
    assert main(["spec", "t.yaml"]) == EXIT_OK
    assert main(["spec", "t.yaml", "-o", "t.csv"]) == EXIT_OK
    assert ran(folder) == "abc" and table(folder)["c"]["met (ms)"] == "3.0"
    (folder / "t.yaml").write_text(SPEC.replace("[a, b, c]", "[a, d]"), encoding="utf-8")
    assert main(["spec", "t.yaml"]) == EXIT_OK
    assert ran(folder) == "abcd"
    (folder / "next.sh").write_text(NEXT + "# changed\n", encoding="utf-8")
    assert main(["spec", "t.yaml"]) == EXIT_OK
    assert ran(folder) == "abcdad"
    assert main(["spec", "t.yaml", "--fresh"]) == EXIT_OK
    assert ran(folder) == "abcdadad"


def test_a_value_that_is_given_twice_is_run_twice(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script_times(folder, a="1 2")
    (folder / "t.yaml").write_text(SPEC.replace("[a, b, c]", "[a, a]"), encoding="utf-8")
    assert main(["spec", "t.yaml"]) == EXIT_OK
    assert ran(folder) == "aa" and "earlier starts" not in capsys.readouterr().out


def test_a_torn_line_of_a_killed_run_is_measured_again(folder: Path) -> None:
    script_times(folder, a="1", b="2", c="3")
    assert main(["spec", "t.yaml"]) == EXIT_OK
    (journal,) = folder.glob("results/spec-t-*/runs.jsonl")
    text = journal.read_bytes()
    journal.write_bytes(text[:-20])
    assert main(["spec", "t.yaml"]) == EXIT_OK
    assert ran(folder) == "abcc"
    assert main(["spec", "t.yaml"]) == EXIT_OK
    assert ran(folder) == "abcc"


WAITS = """\
echo $1 >> ran
if [ $1 = b ]; then echo $$ > started; read go < go; fi
echo met=1
"""


def start(folder: Path, *words: str) -> subprocess.Popen[str]:
    """The tuner as a process, at the moment when it runs b, which waits for the pipe 'go'."""
    (folder / "next.sh").write_text(WAITS, encoding="utf-8")
    os.mkfifo(folder / "started")
    os.mkfifo(folder / "go")
    argv = [sys.executable, str(ROOT / "tune_gemm.py"), "spec", "t.yaml", *words]
    return subprocess.Popen(argv, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_ctrl_c_writes_what_is_measured_and_the_next_start_goes_on(folder: Path) -> None:
    tuner = start(folder, "--tune", "-o", "t.csv")
    (folder / "started").read_text(encoding="utf-8")
    tuner.send_signal(signal.SIGINT)
    assert tuner.stderr is not None
    heard = ""
    while "SIGINT" not in heard:
        heard += tuner.stderr.readline()
    (folder / "go").write_text("\n", encoding="utf-8")
    out, said = tuner.communicate(timeout=240)
    assert "the same command goes on" in said
    assert tuner.returncode == EXIT_INTERRUPTED and "not_run: 1 spec (mesh_idx 2)" in out
    assert {name: row["status"] for name, row in table(folder).items()} == {"a": "ok", "b": "ok", "c": "not_run"}
    assert ran(folder) == "ab"
    assert main(["spec", "t.yaml", "-o", "t.csv"]) == EXIT_OK
    assert ran(folder) == "abc" and {row["status"] for row in table(folder).values()} == {"ok"}


def test_the_program_dies_with_a_killed_tuner_and_one_tuner_has_the_run(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tuner = start(folder)
    program = psutil.Process(int((folder / "started").read_text(encoding="utf-8")))
    assert main(["spec", "t.yaml"]) == EXIT_ENVIRONMENT and "under way already" in capsys.readouterr().err
    tuner.kill()
    tuner.communicate()
    gone, alive = psutil.wait_procs([program], timeout=120)
    assert len(gone) == 1 and not alive
    assert ran(folder) == "ab"


def test_what_a_program_leaves_running_is_ended_with_it(folder: Path) -> None:
    """Even in a session of its own."""
    text = "setsid sh -c 'echo $$ > left; echo > ready; sleep 60' &\nread go < ready\necho met=1\n"
    (folder / "next.sh").write_text(text, encoding="utf-8")
    os.mkfifo(folder / "ready")
    (folder / "t.yaml").write_text(SPEC.replace("[a, b, c]", "a"), encoding="utf-8")
    assert main(["spec", "t.yaml"]) == EXIT_OK
    left = int((folder / "left").read_text(encoding="utf-8"))
    deadline = time.monotonic() + 120
    while psutil.pid_exists(left) and psutil.Process(left).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_of_a_runaway_output_the_end_is_kept(folder: Path) -> None:
    (folder / "next.sh").write_text("head -c 20000000 /dev/zero\necho\necho met=1\n", encoding="utf-8")
    said = run_child(["sh", "next.sh"], os.environ, folder, 1000).stdout
    assert len(said) <= MAX_BYTES and said.endswith("\nmet=1\n")


@pytest.mark.parametrize("before_s", [0.0, 5.0], ids=["a takes longer", "the start does"])
def test_a_budget_ends_the_runs_and_the_next_start_runs_the_rest(
    before_s: float, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it gave counts; something always runs."""
    script_times(folder, a="1.0", b="2.0", c="3.0")
    starts_s = count(0.0, before_s)
    clock = SimpleNamespace(monotonic=lambda: next(starts_s) + 1000.0 * (folder / "ran").exists())
    monkeypatch.setattr(spec_run, "time", clock)
    assert main(["spec", "t.yaml", "--tune", "-o", "t.csv", "--budget", "1s"]) == EXIT_OK
    assert ran(folder) == "a"
    rows = table(folder)
    assert rows["a"]["met (ms)"] == "1.0" and "larger --budget" in rows["b"]["reason"] == rows["c"]["reason"]
    capsys.readouterr()
    assert main(["spec", "t.yaml", "--tune", "-o", "t.csv", "--rounds", "0"]) == EXIT_OK
    assert ran(folder) == "abc" and list(table(folder)) == ["a", "b", "c"]


BRED = """\
name: t
command: "sh -c 'us=$((10 + {A} + 3 * ({B} - 4) * ({B} - 4) + {C} % 7)); echo $us >> ran; echo met=$us'"
params: {A: [5, 4, 3, 2, 1, 0], B: [0, 1, 2, 3, 4, 5, 6, 7], C: [1, 2, 3, 4, 5, 6, 7, 8, 9]}
metric: {regex: "met=(.*)"}
"""


def test_the_genetic_search_runs_few_of_many_and_goes_on_where_it_was(folder: Path) -> None:
    (folder / "t.yaml").write_text(BRED, encoding="utf-8")
    command = ["spec", "t.yaml", "--tune", "--rounds", "0", "--search", "genetic", "-o", "t.csv"]
    assert main(command) == EXIT_OK
    with (folder / "t.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    times = [float(row["met (ms)"]) for row in rows if row["met (ms)"]]
    assert 30 <= len(times) <= 60 < len(rows) == 432
    everything = sorted(10 + a + 3 * (b - 4) ** 2 + c % 7 for a in range(6) for b in range(8) for c in range(1, 10))
    assert times[0] <= everything[12]
    assert {row["reason"] for row in rows if not row["met (ms)"]} == {"the search did not ask for it"}
    once = (folder / "ran").read_text(encoding="utf-8")
    assert main(command) == EXIT_OK
    assert (folder / "ran").read_text(encoding="utf-8") == once


def test_builds_alone_run_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    build = "build: \"sh -c '[ {T} != b ] && touch {out} || { echo no b >&2; exit 3; }'\"\n"
    (folder / "t.yaml").write_text(SPEC + build.replace("{ echo no b >&2; exit 3; }", "{{ echo no b >&2; exit 3; }}"))
    assert main(["spec", "t.yaml", "--compile_only"]) == 1
    said = capsys.readouterr().out
    assert "built 2 of 3 specs of [t]" in said and "no b" in said
    assert not (folder / "ran").exists()
    (folder / "t.yaml").write_text(SPEC)
    assert main(["spec", "t.yaml", "--compile_only"]) == 2

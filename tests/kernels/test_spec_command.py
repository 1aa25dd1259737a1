"""``tune_gemm.py spec`` with real programs: what Modular's tune.py does, and what it leaves to the user."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from spec_runs import METRIC, Run, script

from gemm_tuner.cli import main as cli
from gemm_tuner.core.errors import EXIT_INPUT, EXIT_OK, EXIT_UNVERIFIED
from gemm_tuner.kernels.attempt import other_name
from gemm_tuner.kernels.metrics import Reading
from gemm_tuner.kernels.program_spec import COMMAND, Instance, ProgramSpec
from gemm_tuner.kernels.program_spec_file import read_spec


def test_the_least_time_wins_and_rows_ascend(run: Run) -> None:
    """M1, M8."""
    spec = 'name: toy\ncommand: "echo met={T}.5"\nparams: {T: [3, 1, 2]}\n' + METRIC
    assert run("--tune", "--rounds", "1", "--output", "t.csv", spec=spec) == EXIT_OK
    assert [row["met (ms)"] for row in run.table()] == ["1.5", "2.5", "3.5"]
    assert "top_spec_idx: 1" in run.lines
    assert [line.split()[0] for line in run.lines if "toy/T=" in line] == ["1", "2", "0"]


def test_the_greatest_wins_where_that_is_better(run: Run) -> None:
    spec = 'command: "echo met={T}"\nparams: {T: [3, 1, 4]}\nmetric: {regex: "met=(.*)", unit: GB/s, better: higher}\n'
    assert run("--tune", "--output", "best.yaml", spec=spec) == EXIT_OK
    assert "top_spec_idx: 2" in run.lines and "Best Measured Value:" in run.lines
    best = yaml.safe_load((run.folder / "best.yaml").read_text(encoding="utf-8"))["best"]
    assert best == {"met": 4.0, "unit": "GB/s", "runs": 3, "tie": False}


FAULTS = """\
case $1 in
  segv) kill -SEGV $$;;
  one) echo "no such tile" >&2; exit 1;;
  garbage) printf 'met=\\377\\000abc';;
  nan) echo met=nan;;
  two) echo met=1; echo met=2;;
  fine) echo met=$2;;
esac
"""
STATUSES = {
    "segv": ("crashed", "SIGSEGV"), "none": ("wrong", "prints nothing"),
    "one": ("launch_error", "exit status 1: no such tile"), "garbage": ("wrong", "abc"), "nan": ("wrong", "is nan"),
    "two": ("wrong", "2 times"), "fine": ("ok", ""),
}  # fmt: skip


def test_what_a_program_does_to_itself_costs_its_row_alone(run: Run) -> None:
    """M2, M7: every spec has a row, with a reason where it failed, and the tuner ends with 0."""
    (run.folder / "f.sh").write_text(FAULTS, encoding="utf-8")
    spec = f"command: sh f.sh {{KIND}} {{T}}\nparams: {{KIND: {list(STATUSES)}, $T: 2}}\n" + METRIC
    assert run("--tune", "--output", "t.csv", "--rounds", "0", spec=spec) == EXIT_OK
    rows = run.table()
    assert len(rows) == len(STATUSES) and run.lines[3] == "Number of valid specs: 1"
    for row in rows:
        status, reason = STATUSES[row["KIND"]]
        assert row["status"] == status and reason in row["reason"], row
        assert bool(row["met (ms)"]) == (status == "ok")
    assert rows[0]["KIND"] == "fine" and all(len(line) <= 80 for line in run.lines)


def test_a_program_that_hangs_is_killed_at_its_limit(run: Run) -> None:
    """M2."""
    assert run("-o", "t.csv", spec="command: sleep 600\ntimeout_s: 0.2\n" + METRIC) == EXIT_UNVERIFIED
    (row,) = run.table()
    assert (row["status"], row["reason"]) == ("timeout", "no end after 0.2 s; timeout_s allows more")


def test_a_crash_below_a_shell_is_a_crash(run: Run) -> None:
    spec = "command: \"sh -c 'kill -ABRT $$'; exit $?\"\nshell: true\n" + METRIC
    assert run(spec=spec) == EXIT_UNVERIFIED
    assert "crashed: " in run.said and "SIGABRT in a shell" in run.said


def test_all_failing_for_one_reason_is_said_once(run: Run) -> None:
    spec = f"command: \"sh -c 'echo no device {{T}} >&2; exit 3'\"\nparams: {{T: {list(range(4))}}}\n" + METRIC
    assert run("--tune", spec=spec) == EXIT_UNVERIFIED
    assert run.said.count("no device") == 1 and "all 4 specs fail for one reason" in run.said


def test_a_parameter_that_no_line_uses_is_named(run: Run) -> None:
    spec = "command: echo met=1{A}\nenv: {E: '{B}'}\nparams: {A: [1, 2], B: [1, 2], C: [1, 2], D: 1}\n" + METRIC
    assert run("--rounds", "0", spec=spec) == EXIT_OK
    assert "C is in no command, build or env" in run.said and run.said.count("is in no command") == 1


def test_a_program_that_is_not_there_is_said_so(run: Run) -> None:
    assert run("--tune", spec="command: ./not-built\nparams: {T: [1, 2]}\n" + METRIC) == EXIT_UNVERIFIED
    assert f"no such program: ./not-built in {run.folder}" in run.said and "finals" not in " ".join(run.log)
    assert run(spec="command: no-such-program-9\nparams: {T: [1, 2]}\n" + METRIC) == EXIT_UNVERIFIED
    assert "no such command: no-such-program-9" in run.said


def test_modulars_own_flags_run_all_specs(modular: Run) -> None:
    """M7."""
    assert cli.main(["spec", "--yaml", "t.yaml", "--output", "out.csv"]) == EXIT_OK
    assert [(row["M"], row["S"], row["met (ms)"]) for row in modular.table("out.csv")] == [
        ("3", "4", "0.34"), ("3", "8", "0.38"), ("2", "4", "0.24"), ("2", "8", "0.28"),
    ]  # fmt: skip


def test_each_spec_is_a_process_and_one_case(modular: Run) -> None:
    """M3: a program that reports two cases is refused with a sentence."""
    assert modular() == EXIT_OK
    assert len((modular.folder / "calls").read_text(encoding="utf-8").splitlines()) == 4
    with (modular.folder / "mojo").open("a", encoding="utf-8") as mojo:
        mojo.write('echo "| gemm/other | 0.5 | 2 | 3 |"\n')
    assert modular() == EXIT_UNVERIFIED
    assert "reports 2 cases and not exactly one" in modular.said


def test_parameters_arrive_as_defines_and_those_of_run_time_as_words(modular: Run) -> None:
    """M4."""
    spec = "file: sample.mojo\nparams: {DTYPE: DType.float16, M: 3, T: false, $S: [4]}\n"
    assert modular(spec=spec) == EXIT_OK
    (call,) = (modular.folder / "calls").read_text(encoding="utf-8").splitlines()
    assert call == "-D DTYPE=DType.float16 -D M=3 -D T=False sample.mojo --S=4"


@pytest.mark.parametrize(("printed", "is_it"), [
    ("toy/M=1", True), ("M=1/N=2", True), ("(M=1)", True), ("M=1.", True), ("toy/M=16", False), ("BM=1", False),
    ("M=1.5", False), ("M=-1", False), ("N=1", False),
])  # fmt: skip
def test_a_case_has_the_value_that_is_expected_and_not_one_that_begins_like_it(printed: str, is_it: bool) -> None:
    spec = ProgramSpec(Path(), {}, "t", COMMAND, "", (), Path(), expect_name="M={M}")
    fault = other_name(spec, Instance(0, "", {"M": 1}), Reading(1.0, printed), "")
    assert (not fault) == is_it


def test_a_program_that_ignores_a_parameter_is_reported_and_not_ranked(modular: Run) -> None:
    """M5: it takes M and not N."""
    spec = "file: sample.mojo\nparams: {M: 1, N: [1, 2], S: 5}\nexpect_name: gemm/M={M}/S={S}\n"
    assert modular(spec=spec) == EXIT_OK
    assert modular("--tune", "-o", "t.csv", spec=spec.replace("S={S}", "S={N}")) == EXIT_UNVERIFIED
    assert all(row["status"] == "wrong" and "gemm/M=" in row["reason"] for row in modular.table())


GOLDEN = """\
----
Tuning [gemm] from [sample.mojo]
----
Number of valid specs: 3
mesh_idx name met (ms) iters Arithmetic (GFLOPS/s)
3 gemm/M=2/S=8 0.280000 2 178.123457
0 gemm/M=3/S=4 0.340000 2 174.123457
1 gemm/M=3/S=8 0.380000 2 178.123457
pruned: 1 spec (mesh_idx 2): rule: M != 2 or S != 4
top_spec_idx: 3
finals: the first row is the median of 3 more runs each, which spread by up to 0.0 %
----
Best Measured Time:
----
name: gemm
file: sample.mojo
params:
M: 2
S: 8
rules:
- M != 2 or S != 4
best:
met: 0.28
unit: ms
runs: 3
iters: 2
Arithmetic (GFLOPS/s): 178.123456789
tie: false
----
Elapsed tuning time: T (s)
"""


def test_the_output_is_as_modulars(modular: Run) -> None:
    """M9: mesh_idx counts the specs that were not run, too."""
    with (modular.folder / "t.yaml").open("a", encoding="utf-8") as file:
        file.write("rules: [M != 2 or S != 4]\n")
    assert modular("--tune", width=0) == EXIT_OK
    text = re.sub(r"time: [\d.]+ ", "time: T ", "\n".join(" ".join(line.split()) for line in modular.lines))
    assert re.sub("-{20,}", "----", text) + "\n" == GOLDEN


def test_the_best_is_a_spec_again_in_print_and_in_its_file(modular: Run) -> None:
    """M10: wherever the file lies."""
    (modular.folder / "below").mkdir()
    assert modular("--tune", "--rounds", "0", "--output", "below/best.yaml") == EXIT_OK
    lines = modular.lines
    block = "\n".join(lines[lines.index("Best Measured Time:") + 2 : -2])
    (modular.folder / "printed.yaml").write_text(block, encoding="utf-8")
    for name in ("printed.yaml", "below/best.yaml"):
        spec = read_spec(modular.folder / name)
        assert {param.name: param.values for param in spec.params} == {"M": (2,), "S": (4,)}
        assert (spec.cwd, spec.best, spec.count) == (modular.folder.resolve(), 0.24, 1)


def test_a_best_file_is_run_and_compared(modular: Run) -> None:
    assert modular("--tune", "--rounds", "0", "--output", "best.yaml") == EXIT_OK
    text = (modular.folder / "best.yaml").read_text(encoding="utf-8")
    assert modular("--compare_wo_tuning", spec=text.replace("met: 0.24", "met: 0.12")) == EXIT_OK
    assert "0.240000 ms, was 0.120000 ms (+100.0 %)" in modular.lines[-1]
    script(modular.folder / "mojo", "#!/bin/sh\nexit 5\n")
    assert modular("--check") == EXIT_UNVERIFIED and "exit status 5" in modular.said
    assert modular("--compare_wo_tuning", spec=text.replace("M: 2", "M: [2, 3]")) == EXIT_INPUT

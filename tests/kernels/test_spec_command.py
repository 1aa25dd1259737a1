"""``tune_gemm.py spec`` with real programs: what Modular's tune.py does, and what it leaves to the user."""

from __future__ import annotations

import csv
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from nsys_for_programs import nsys_for_programs
from samples import ROOT
from screens import Screen

from gemm_tuner.cli import main as cli
from gemm_tuner.cli.commands import Consoles
from gemm_tuner.core.errors import EXIT_ENVIRONMENT, EXIT_INPUT, EXIT_OK, EXIT_UNVERIFIED
from gemm_tuner.kernels.attempt import other_name
from gemm_tuner.kernels.metrics import Reading
from gemm_tuner.kernels.program_spec import COMMAND, Instance, ProgramSpec
from gemm_tuner.kernels.program_spec_file import read_spec

# A stand-in of Modular's Bench: its time and its case follow from what it is given. It notes its arguments.
BENCH = """\
#!/bin/sh
echo "$@" >> calls
for word in "$@"; do case $word in *=*) eval "${word#--}";; esac; done
echo "| name | met (ms) | iters | Arithmetic (GFLOPS/s) |"
echo "| ---- | -------- | ----- | --------------------- |"
echo "| gemm/M=${M}/S=${S} | 0.${M}${S} | 2 | 17${S}.123456789 |"
"""


class Run:
    """The command in a folder, as on a terminal of 80 columns unless ``width`` is 0."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self._patch, self.setenv = folder, monkeypatch, monkeypatch.setenv
        monkeypatch.chdir(folder)
        self.lines: list[str] = []
        self.log: list[str] = []

    def __call__(self, *words: str, spec: str = "", width: int = 80) -> int:
        if spec:
            (self.folder / "t.yaml").write_text(spec, encoding="utf-8")
        out, log = Screen(width), Screen(0)
        self._patch.setattr(cli, "consoles", lambda: Consoles(log.console, out.console))
        status = cli.main(["spec", "t.yaml", *words])
        self.lines, self.log = out.lines, log.lines
        return status

    @property
    def said(self) -> str:
        """All that was printed, without its line ends."""
        return " ".join(" ".join(self.lines).split())

    def table(self, name: str = "t.csv") -> list[dict[str, str]]:
        with (self.folder / name).open(encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.delenv("MODULAR_PYTHON", raising=False)
    return Run(tmp_path, monkeypatch)


def script(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)
    return path


@pytest.fixture
def modular(run: Run) -> Run:
    """A spec as Modular's, and a stand-in of mojo on PATH."""
    script(run.folder / "mojo", BENCH)
    run.setenv("PATH", f"{run.folder}:{os.environ['PATH']}")
    (run.folder / "sample.mojo").touch()
    text = "name: gemm\nfile: sample.mojo\nparams:\n    M: [3, 2]\n    S: [4, 8]\n"
    (run.folder / "t.yaml").write_text(text, encoding="utf-8")
    return run


METRIC = 'metric: {regex: "met=([-+.a-zA-Z0-9]+)"}\n'


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


def test_the_interpreter_is_of_ones_choice(run: Run) -> None:
    """M11: by the spec, or beside $MODULAR_PYTHON."""
    (run.folder / "sample.mojo").touch()
    (run.folder / "env").mkdir()
    for place in ("mine", "env/mojo"):
        script(run.folder / place, BENCH.replace("calls", f"{run.folder}/called_{Path(place).name}"))
    run.setenv("PATH", "/usr/bin:/bin")
    spec = "file: sample.mojo\nparams: {M: 1, S: 1}\n"
    assert run(spec=spec) == EXIT_ENVIRONMENT and "pip install mojo" in run.log[-1]
    assert run(spec=spec + "mojo: ./mine\n") == EXIT_OK and (run.folder / "called_mine").exists()
    run.setenv("MODULAR_PYTHON", str(run.folder / "env" / "python"))
    assert run(spec=spec) == EXIT_OK and (run.folder / "called_mojo").exists()


def test_a_python_program_gets_its_parameters_as_words(run: Run) -> None:
    (run.folder / "b.py").write_text("import sys\nprint('met=1', sys.argv[1:], sys.flags.optimize)", encoding="utf-8")
    spec = f"file: b.py\npython: {sys.executable} -O\nparams: {{A: x y}}\nexpect_name: \"['--A=x y'] 1\"\n" + METRIC
    assert run(spec=spec) == EXIT_OK


def test_lines_are_built_once_and_one_that_fails_costs_its_specs(run: Run) -> None:
    fails = '[ $1 = 3 ] && { echo "error: tile 3" >&2; exit 1; }'
    script(run.folder / "cc.sh", f'#!/bin/sh\necho "$@" >> built\n{fails}\necho $1 > $2\n')
    spec = (
        'build: "./cc.sh {T} {out}"\ncommand: "cat {out}"\nparams: {T: [3, 1], $N: [1, 2]}\n'
        'metric: {regex: "([0-9])"}\n'
    )
    assert run("--tune", "--rounds", "0", "-o", "t.csv", spec=spec) == EXIT_OK
    assert len((run.folder / "built").read_text(encoding="utf-8").splitlines()) == 2
    rows = run.table()
    assert [row["T"] for row in rows] == ["1", "1", "3", "3"]
    assert {row["status"] for row in rows[2:]} == {"compile_error"} and "error: tile 3" in rows[2]["reason"]


def test_the_example_in_c_is_tuned(run: Run) -> None:
    """Real times of a real compiler's code, its tiles checked by the program itself."""
    for name in ("matmul.c", "matmul.yaml"):
        (run.folder / name).write_text(
            (ROOT / "examples" / "kernels" / name).read_text(encoding="utf-8"), encoding="utf-8"
        )
    text = (run.folder / "matmul.yaml").read_text(encoding="utf-8")
    text = text.replace("[2, 8, 32]", "[1, 8]").replace("[8, 32, 64]", "[1, 32]").replace("200", "5")
    assert run("--tune", "-o", "t.csv", "--rounds", "1", spec=text) == EXIT_OK
    rows = run.table()
    assert all(row["status"] == "ok" and float(row["met (ms)"]) > 0 for row in rows)
    assert {(row["TILE_M"], row["TILE_N"]) for row in rows} == {("1", "1"), ("1", "32"), ("8", "1"), ("8", "32")}


def test_neither_torch_nor_triton_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "t.yaml").write_text("command: echo met=1\n" + METRIC, encoding="utf-8")
    code = "import sys; from gemm_tuner.cli.main import main; main(['spec', 't.yaml', '--tune']); print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "top_spec_idx: 0" in done.stdout
    assert {"torch", "triton", "pandas"} & set(done.stdout.split()) == set()


@pytest.mark.skipif(shutil.which("mojo") is None, reason="Mojo is not installed (pip install mojo)")
def test_the_example_in_mojo_is_run(run: Run) -> None:
    """Modular's own Bench, compile-time parameters, and a constraint that does not hold."""
    for name in ("matmul.mojo", "matmul_mojo.yaml"):
        (run.folder / name).write_text((ROOT / "examples" / "kernels" / name).read_text("utf-8"), encoding="utf-8")
    text = (run.folder / "matmul_mojo.yaml").read_text(encoding="utf-8").replace("128", "16")
    spec = text.replace("[1, 4, 16, 64, 48]", "[8, 3]") + "expect_name: N={N}/TILE={TILE}\n"
    assert run("-o", "t.csv", spec=spec) == EXIT_OK
    good, bad = run.table()
    assert good["status"] == "ok" and float(good["met (ms)"]) > 0 and float(good["Arithmetic (GFLOPS/s)"]) > 0
    assert bad["status"] == "launch_error" and "error" in bad["reason"]


@pytest.mark.skipif(None in map(shutil.which, ("mojo", "ptxas")), reason="Mojo or ptxas is not installed")
def test_the_example_of_a_gpu_kernel_in_mojo_is_compiled_without_a_gpu(run: Run) -> None:
    """Registers of one configuration, and one whose tiles do not divide the matrix."""
    for name in ("matmul_gpu.mojo", "matmul_gpu_mojo.yaml"):
        (run.folder / name).write_text((ROOT / "examples" / "kernels" / name).read_text("utf-8"), encoding="utf-8")
    text = (run.folder / "matmul_gpu_mojo.yaml").read_text(encoding="utf-8")
    spec = text.replace("[16, 32]", "[16, 24]").replace("[4, 8, 32]", "4")
    assert run("-o", "t.csv", spec=spec) == EXIT_OK
    good, bad = run.table()
    if "install MAX" in good["reason"]:
        pytest.skip("Mojo is here without max-core")
    assert good["status"] == "ok" and 16 <= float(good["met (registers)"]) <= 255
    assert bad["status"] == "compile_error" and bad["reason"]


REFUSED = {
    "two files": (["--yaml", "t.yaml"], "both SPEC and --yaml"),
    "an ending": (["--output", "x.txt"], "FILE.csv"),
    "a best spec without tuning": (["--output", "x.yaml"], "--tune"),
    "the spec itself": (["--tune", "--output", "t.yaml"], "lost"),
    "no such folder": (["--output", "no/x.csv"], "does not exist"),
    "an unknown parameter": (["--explain", "TT=1"], "did you mean T?"),
    "an unknown value": (["--explain", "T=7"], "accepted: 1, 2"),
    "a check of results": (["--compare"], "--compare_wo_tuning"),
    "an architecture": (["--arch=sm_90"], "build:"),
    "a rule that raises": (["--dry_run"], "has no value: integer"),
}


@pytest.mark.parametrize(("words", "says"), REFUSED.values(), ids=list(REFUSED))
def test_what_is_asked_wrongly_is_one_line(
    run: Run, capfd: pytest.CaptureFixture[str], words: list[str], says: str
) -> None:
    spec = 'command: "echo met={T}"\nparams: {T: [1, 2]}\n' + METRIC
    spec += 'rules: ["1 // (T - 2) < 5"]\n' if words == ["--dry_run"] else ""
    assert run(*words, spec=spec) == EXIT_INPUT
    assert len(run.log) == 1 and says in run.log[0], run.log


def test_explain_and_dry_run_name_the_rule(run: Run) -> None:
    spec = (
        'name: r\ncommand: "echo met={T}"\nparams: {T: [1, 2, 4], N: [1, 2]}\n'
        "rules: [T * N <= 4, {keep: T != 2, why: slow everywhere}]\n" + METRIC
    )
    assert run("--explain", "T=4,N=2", spec=spec) == EXIT_OK
    assert run.lines == ["spec 5, r/T=4/N=2, is cut by rule: T * N <= 4"]
    assert run("--explain", "T=1,N=2") == EXIT_OK and run.lines[0].endswith("is run")
    assert run("--explain", "N=2") == EXIT_OK
    assert run.lines[0] == "1 of 3 specs with N=2 are run" and "slow everywhere" in run.said
    assert run("--dry_run") == EXIT_OK
    assert run.lines[0] == "3 of 6 specs of [r] would be run" and not (run.folder / "results").exists()
    assert [line.split()[0] for line in run.lines if "r/T" in line] == ["0", "1", "4"]


def test_a_narrow_terminal_shows_what_tells_the_rows_apart(modular: Run) -> None:
    """Modular's own example: the program gives all rows one long name."""
    mojo = (modular.folder / "mojo").read_text(encoding="utf-8")
    script(modular.folder / "mojo", mojo.replace("gemm/M=${M}/S=${S}", "gemm" + "/dtype=bfloat16" * 4))
    assert modular("--tune", "--rounds", "0") == EXIT_OK
    heading = next(at for at, line in enumerate(modular.lines) if line.startswith("mesh_idx"))
    assert modular.lines[heading].split()[-2:] == ["M", "S"] and modular.lines[heading + 1].split()[-2:] == ["2", "4"]
    assert "not shown for the width: name" in modular.said
    assert modular("--tune", "--rounds", "0", width=120) == EXIT_OK
    assert "not shown" not in modular.said and "/dtype=bfloat16" in modular.said


LAUNCHES = """\
[ $1 = 9 ] && exit 4
for ns in 3000 1000 90000; do echo "$(($ns * $1)) matmul_kernel" >> $TRACE/kernels.txt; done
echo "7000 fill_kernel" >> $TRACE/kernels.txt
"""


def test_a_profiler_times_the_kernels_whose_names_match(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of three launches the median counts, or the last; a program that fails under the profiler has its own status."""
    nsys_for_programs(run.folder, monkeypatch)
    (run.folder / "launches.sh").write_text(LAUNCHES, encoding="utf-8")
    spec = 'name: t\ncommand: "sh launches.sh {T}"\nparams: {T: [2, 1, 9]}\nprofile: {kernels: "^matmul", tool: nsys}\n'
    assert run("--tune", "--rounds", "1", "--output", "t.csv", spec=spec) == EXIT_OK
    rows = run.table()
    assert [(row["T"], row["met (ms)"], row["kernels"]) for row in rows[:2]] == [
        ("1", "0.003", "1"),
        ("2", "0.006", "1"),
    ]
    assert rows[2]["status"] == "launch_error" and "4" in rows[2]["reason"]
    assert run("--tune", "--rounds", "1", "--output", "t.csv", spec=spec + "select: last\n") == EXIT_OK
    assert [row["met (ms)"] for row in run.table()[:2]] == ["0.09", "0.18"]
    assert run("--tune", "--fresh", spec=spec.replace("^matmul", "gemm")) == EXIT_UNVERIFIED
    assert "no kernel matches 'gemm'; it ran matmul_kernel, fill_kernel" in run.said


def test_of_several_runs_the_median_or_the_last_counts(run: Run) -> None:
    script(run.folder / "t.sh", "#!/bin/sh\necho x >> t$1\nwc -l < t$1 | sed 's/^/ms=/'\n")
    spec = "name: t\ncommand: ./t.sh {T}\nparams: {T: 1}\nrepeat: 5\nmetric: {regex: 'ms=(.*)'}\n"
    for select, ms in (("", "3.0"), ("select: median\n", "3.0"), ("select: last\n", "5.0")):
        assert run("--output", "t.csv", spec=spec + select) == EXIT_OK
        assert [row["met (ms)"] for row in run.table()] == [ms]


@pytest.mark.parametrize(
    ("spec", "words", "told"),
    [
        ("metric: {regex: 'x=(.*)'}\nprofile: {kernels: x}", (), "a metric and a profile"),
        ("profile: {kernel: x}", (), "kernels"),
        ("profile: {kernels: '('}", (), "the regex is wrong"),
        ("profile: {kernels: x, tool: proton}", (), "proton times no program"),
        (METRIC, ("--profiler", "nsys"), "does not say which kernels count"),
    ],
)
def test_a_profile_that_says_too_little_is_refused(run: Run, spec: str, words: tuple[str, ...], told: str) -> None:
    assert run(*words, spec=f'command: "echo {{T}}"\nparams: {{T: [1]}}\n{spec}\n') == EXIT_INPUT
    assert told in " ".join(run.log)

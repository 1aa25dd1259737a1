"""``tune_gemm.py spec`` with programs of several languages, how each is started, and what is asked wrongly."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from nsys_for_programs import nsys_for_programs
from samples import ROOT
from spec_runs import BENCH, METRIC, Run, script

from gemm_tuner.core.errors import EXIT_ENVIRONMENT, EXIT_INPUT, EXIT_OK, EXIT_UNVERIFIED


def test_the_interpreter_is_of_ones_choice(run: Run) -> None:
    """M11: by the spec, or beside $MODULAR_PYTHON."""
    (run.folder / "sample.mojo").touch()
    (run.folder / "env").mkdir()
    for place in ("mine", "env/mojo"):
        script(run.folder / place, BENCH.replace("calls", f"{run.folder}/called_{Path(place).name}"))
    run.setenv("PATH", "/usr/bin:/bin")
    spec = "file: sample.mojo\nparams: {M: 1, S: 1}\n"
    script(run.folder / "mojo", BENCH)  # a file of the working directory is not looked for
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


def test_the_reason_has_the_compilers_note_about_its_first_error(run: Run) -> None:
    lines = ("m.mojo:20:5: error: instantiation failed", "    ^", "m.mojo:21:5: note: constraint failed: T divides N")
    text = "".join(f"echo '{line}' >&2\n" for line in (*lines, "mojo: error: failed to run"))
    script(run.folder / "c.sh", f"#!/bin/sh\n{text}exit 1\n")
    assert run("-o", "t.csv", spec='command: "./c.sh {T}"\nparams: {T: 1}\n' + METRIC) == EXIT_UNVERIFIED
    (row,) = run.table()
    assert "error: instantiation failed" in row["reason"] and "constraint failed: T divides N" in row["reason"]


@pytest.mark.parametrize(
    ("lines", "has", "lacks"),
    [
        (
            ("a.c:1: error: first", "a.c:9: error: second", "a.c:9: note: of the second"),
            "error: first",
            "of the second",
        ),
        ((f"a.c:1: error: {'long ' * 99}", "a.c:2: note: short"), "short", "#"),
    ],
)
def test_a_note_is_that_of_the_first_error(lines: tuple[str, ...], has: str, lacks: str, run: Run) -> None:
    script(run.folder / "c.sh", "#!/bin/sh\n" + "".join(f"echo '{line}' >&2\n" for line in lines) + "exit 1\n")
    assert run("-o", "t.csv", spec='command: "./c.sh {T}"\nparams: {T: 1}\n' + METRIC) == EXIT_UNVERIFIED
    (row,) = run.table()
    assert has in row["reason"] and lacks not in row["reason"]


def test_a_note_on_the_errors_own_line_is_said_once(run: Run) -> None:
    script(run.folder / "c.sh", "#!/bin/sh\necho 'error: first; note: its own' >&2\nexit 1\n")
    assert run("-o", "t.csv", spec='command: "./c.sh {T}"\nparams: {T: 1}\n' + METRIC) == EXIT_UNVERIFIED
    assert run.table()[0]["reason"].count("its own") == 1


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

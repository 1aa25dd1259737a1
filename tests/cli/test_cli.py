"""The command line: what each mistake is answered with."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest
from command_answers import ONE, answer
from samples import NO_GPU, ROOT, gpu
from screens import Screen

from gemm_tuner.cli import main as cli
from gemm_tuner.cli.commands import Consoles
from gemm_tuner.cli.main import main
from gemm_tuner.cli.options import REPLACED
from gemm_tuner.core.errors import EXIT_ENVIRONMENT, EXIT_INPUT, EXIT_INTERRUPTED, EXIT_OK, UserError
from gemm_tuner.gemm.problem import GemmProblem
from gemm_tuner.measure import device as devices
from gemm_tuner.measure.device import Machine
from gemm_tuner.pipeline import cluster_run, prepare
from gemm_tuner.pipeline import run as pipeline
from gemm_tuner.pipeline.run_options import RunOptions
from gemm_tuner.system import bug_report

pytestmark = pytest.mark.usefixtures("machine")

H200 = Machine((gpu(0),), NO_GPU.versions, "570.1")
FILES = {
    "typo in a key": ("- {M: 1, N: 1, K: 1}\n- {M: 1, N: 1, KK: 1}\n", ["entry 2 (line 2)", "'KK'", "did you mean K"]),
    "M is 0": ("- {M: 0, N: 1, K: 1}\n", ["entry 1", "M is 0", "an integer from 1"]),
    "negative": ("- {M: 1, N: -8, K: 1}\n", ["entry 1", "N is -8"]),
    "no integer": ("- {M: 1, N: 1, K: 1.5}\n", ["entry 1", "K is 1.5"]),
    "unknown dtype": ("- {M: 1, N: 1, K: 1, dtype: fp8}\n", ["entry 1", "dtype is 'fp8'", "fp16, bf16, fp32", "MI300"]),
    "scales of bf16": ("- {M: 1, N: 1, K: 1, scaling: tensor}\n", ["entry 1 (line 1)", "the inputs are bf16"]),
    "no fraction": ("- {M: 1, N: 1, K: 1, alpha: 1e-5}\n", ["entry 1", "alpha is '1e-5'", "write 1.0e-05"]),
    "key twice": ("- {M: 1, M: 2, N: 1, K: 1}\n", ["line 1", "M"]),
    "empty list": ("[]\n", ["holds no sizes", "M: 4096"]),
    "empty file": ("", ["sizes.yaml"]),
    "another format version": ("format_version: 99\nconfigs: []\n", ["format_version 99", "reads 1 to 2", "tune"]),
    "no YAML": ("{M: [\n", ["line"]),
}  # fmt: skip


@pytest.mark.parametrize(("text", "words"), FILES.values(), ids=list(FILES))
@pytest.mark.parametrize("doing", [[], ["--compare"], ["--benchmark"], ["--compare_wo_tuning"], ["--dry_run"]])
def test_a_bad_size_file(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str, words: list[str], doing: list[str]
) -> None:
    path = tmp_path / "sizes.yaml"
    path.write_text(text)
    status, line = answer(capsys, ["--gemm_size_file", str(path), *doing])
    assert status == EXIT_INPUT
    assert [word for word in [str(path), *words] if word not in line] == []
    assert [p.name for p in tmp_path.iterdir()] == ["sizes.yaml"]


BAD_FLAGS = {
    "nothing": ([], ["no size is given", "--gemm_size_file FILE"]),
    "half a size": (["-m", "5"], ["all of -m, -n and -k"]),
    "file and size": (["--gemm_size_file", "x.yaml", "-m", "5"], ["both --gemm_size_file and"]),
    "no such file": (["--gemm_size_file", "x.yaml"], ["x.yaml", "No such file"]),
    "empty file name": (["--gemm_size_file", ""], ["size file"]),
    "size 0": (["-m", "0", "-n", "1", "-k", "1"], ["-m: '0'", "1 or more"]),
    "size below 0": (["-m", "1", "-n", "-5", "-k", "1"], ["-n: '-5'", "1 or more"]),
    "size 1.5": (["-m", "1", "-n", "1", "-k", "1.5"], ["-k: '1.5'", "1 or more"]),
    "size too large": (["-m", "1", "-n", "1", "-k", str(2**31)], ["K is 2147483648", "2147483647"]),
    "type": ([*ONE, "-dtype_a", "fp8"], ["-dtype_a: 'fp8'", "accepted: fp16, bf16, fp32", "fp8_e4m3 (OCP) or"]),
    "torch's type": ([*ONE, "-dtype_b", "bfloat16"], ["-dtype_b: 'bfloat16'", "; did you mean bf16?"]),
    "type of C": ([*ONE, "-dtype_c", "fp8_e4m3"], ["-dtype_c: 'fp8_e4m3'", "fp16, bf16, fp32, int32", "for A and B"]),
    "int32 in": ([*ONE, "-dtype_a", "int32"], ["-dtype_a: 'int32'", "int32 is for C only"]),
    "int32 of fractions": ([*ONE, "-dtype_c", "int32"], ["-m, -n and -k: dtype_c is int32", "int8"]),
    "no batch": ([*ONE, "--batch", "0"], ["--batch: '0'", "1 or more"]),
    "large batch": ([*ONE, "--batch", "65536"], ["--batch: '65536'", "65535"]),
    "activation": ([*ONE, "--activation", "relo"], ["--activation: 'relo'", "none, relu, gelu", "did you mean relu?"]),
    "no number": ([*ONE, "--alpha", "half"], ["--alpha: 'half'", "a finite number that fp32 holds"]),
    "infinite": ([*ONE, "--beta", "inf"], ["--beta: 'inf'", "a finite number"]),
    "alpha 0": ([*ONE, "--alpha", "0"], ["alpha is 0", "no product"]),
    "scaling": ([*ONE, "--scaling", "rows"], ["--scaling: 'rows'", "none, tensor, row_col, block"]),
    "scales of bf16": ([*ONE, "--scaling", "tensor"], ["scaling is tensor and the inputs are bf16"]),
    "precision": ([*ONE, "--precision", "tf-32"], ["--precision: 'tf-32'", "did you mean tf32?"]),
    "tf32 of bf16": ([*ONE, "--precision", "tf32"], ["precision is tf32 and the inputs are bf16"]),
    "mixed types": ([*ONE, "-dtype_a", "fp16", "-dtype_b", "bf16"], ["mixed input types"]),
    "misspelt flag": ([*ONE, "--profler", "nsys"], ["unknown flag --profler", "did you mean --profiler?"]),
    "one dash": ([*ONE, "-compare"], ["unknown flag -compare", "did you mean --compare?"]),
    "unheard-of flag": ([*ONE, "--zzzz=1"], ["unknown flag --zzzz", "--help"]),
    "flag of spec": (["--yaml", "x.yaml"], ["unknown flag --yaml", "spec --yaml SPEC.yaml --tune"]),
    "abbreviated flag": ([*ONE, "--prof", "nsys"], ["unknown flag --prof", "--profiler"]),
    "a word too many": ([*ONE, "65"], ["unexpected argument '65'", "--help"]),
    "a bare file": (["sizes.yaml"], ["unexpected argument 'sizes.yaml'", "--gemm_size_file"]),
    "control characters": ([*ONE, "--\x1b[31mred"], ["unknown flag"]),
    "lines in a value": ([*ONE, "--profiler", "a\nb"], ["--profiler: 'a\\nb'"]),
    "no value": (["-m"], ["-m: needs a value", "M: one size: M, elements"]),
    "no configuration to explain": ([*ONE, "--explain"], ["--explain: needs a value", "FIELD=VALUE"]),
    "no configuration before a flag": ([*ONE, "--explain", "--verbose"], ["--explain: needs a value", "FIELD=VALUE"]),
    "percent of a help": ([*ONE, "--min_improvement"], ["--min_improvement: needs a value", "such as 3%"]),
    "value for a switch": ([*ONE, "--compare=yes"], ["--compare: 'yes'", "finalists, all"]),
    "two jobs": ([*ONE, "--benchmark", "--dry_run"], ["--dry_run: not allowed with argument --benchmark"]),
    "profiler": ([*ONE, "--profiler", "nsyss"], ["--profiler: 'nsyss'", "auto, rocprofv3", "did you mean nsys?"]),
    "init_type": ([*ONE, "--init_type", "random"], ["--init_type: 'random'", "randn, hpl"]),
    "ids": ([*ONE, "--gpu_ids", "0,,1"], ["--gpu_ids: '0,,1'", "0,1,3"]),
    "negative id": ([*ONE, "--gpu_ids", "-1"], ["--gpu_ids: '-1'"]),
    "both of GPUs": ([*ONE, "--gpu_ids", "0", "--ngpus", "1"], ["both --gpu_ids and --ngpus"]),
    "no GPUs": ([*ONE, "--ngpus", "0"], ["--ngpus: '0'", "1 or more"]),
    "iters": ([*ONE, "--iters", "many"], ["--iters: 'many'"]),
    "rotating": ([*ONE, "--rotating_tensor", "-1"], ["--rotating_tensor: '-1'", "0 or more"]),
    "rules": ([*ONE, "--rules", "nowhere"], ["--rules", "nowhere"]),
    "templates": ([*ONE, "--templates", "nowhere"], ["--templates", "nowhere"]),
    "space": ([*ONE, "--space", "nowhere.yaml"], ["nowhere.yaml", "cannot read the space file"]),
    "space of another vendor": ([*ONE, "--space", str(ROOT / "rules/space_gfx942.yaml")], ["backend is hip", "--arch"]),
    "arch": ([*ONE, "--arch", "sm_42"], ["--arch", "'sm_42'", "gfx90a, gfx942", "sm_90"]),
    "replay without a folder": ([*ONE, "--profiler", "replay"], ["--replay DIR", "--keep"]),
    "a folder without replay": ([*ONE, "--replay", "x"], ["--profiler replay and --replay belong together"]),
    "replay of nothing": ([*ONE, "--profiler", "replay", "--replay", "x"], ["--replay: x is no recording"]),
    "GPUs for a replay": ([*ONE, "--profiler", "replay", "--replay", "x", "--ngpus", "1"], ["a replay uses no GPU"]),
    "given configurations": ([*ONE, "--compare_wo_tuning"], ["has no configuration", "a results file"]),
}  # fmt: skip


@pytest.mark.parametrize(("argv", "words"), BAD_FLAGS.values(), ids=list(BAD_FLAGS))
def test_a_bad_command_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, argv: list[str], words: list[str]
) -> None:
    status, line = answer(capsys, argv)
    assert status == EXIT_INPUT
    assert [word for word in words if word not in line] == []
    assert list(tmp_path.iterdir()) == []


MACHINE_FAULTS = {
    "no GPU for the profiler": ([*ONE, "--profiler", "nsys"], ["--profiler", "no GPU", "under nsys", "predicted"]),
    "no GPU of that id": ([*ONE, "--gpu_ids", "7"], ["--gpu_ids", "no GPU"]),
    "no GPUs": ([*ONE, "--ngpus", "2"], ["--ngpus", "no GPU"]),
    "nothing to time on": ([*ONE, "--benchmark"], ["--benchmark needs a GPU"]),
    "nothing to beat an older choice by": (
        [*ONE, "--update", str(ROOT / "tests" / "golden" / "export" / "mi300x.yaml")], ["--update needs a GPU"]),
}  # fmt: skip


@pytest.mark.parametrize(("argv", "words"), MACHINE_FAULTS.values(), ids=list(MACHINE_FAULTS))
def test_what_the_machine_lacks(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, argv: list[str], words: list[str]
) -> None:
    (tmp_path / "file").touch()
    status, line = answer(capsys, argv)
    assert status == EXIT_ENVIRONMENT
    assert [word for word in words if word not in line] == []
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


PLACES = {  # of what a command writes, where none can be
    "run": ([*ONE, "-o"], ["no/x", ".", "file/x", "new/", ""]),
    "runs": ([*ONE, "--output_dir"], ["file", "file/results"]),
    "report": (["report", "run", "-o"], ["no/x", ".", "file/x"]),
    "sizes": (["sizes", "--from", "file", "-o"], ["no/x", ".", "file/x"]),
    "compare": (["compare", "file", "file", "-o"], ["no/x", ".", "file/x"]),
    "compact": (["compact", "file", "-o"], ["no/x", ".", "file/x"]),
    "export": (["export", "file", "--to", "csv", "-o"], ["file", "file/out"]),
    "collect": (["collect", "file", "-o"], ["file", "file/out"]),
    "spec": (["spec", "file", "-o"], ["no/x.csv", "file/x.csv"]),
}


@pytest.mark.parametrize(("argv", "places"), PLACES.values(), ids=list(PLACES))
def test_a_place_where_nothing_can_be_written_is_a_wrong_command_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, argv: list[str], places: list[str]
) -> None:
    """Also where its folder is a file: no disk and no permission is at fault."""
    (tmp_path / "file").touch()
    for place in places:
        status, line = answer(capsys, [*argv, place])
        assert (status, f"{argv[-1]}: " in line) == (EXIT_INPUT, True), line
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_gpus_are_looked_for_while_the_pipeline_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[RunOptions] = []
    monkeypatch.setattr(devices, "look", lambda: H200)
    monkeypatch.setattr(pipeline, "tune", lambda run_options, *_: heard.append(run_options) or EXIT_OK)
    main(ONE)
    assert heard[0].looking is not None and heard[0].looking.result(timeout=240) is H200
    monkeypatch.setattr(devices, "look", lambda: NO_GPU)
    assert prepare.find_environment(heard[0]).machine is H200  # nobody looks again
    monkeypatch.setattr(cluster_run, "tune", lambda run_options, *_: heard.append(run_options) or EXIT_OK)
    main([*ONE, "--cluster", "ray"])
    assert heard[1].looking is None


def test_a_profiler_that_is_not_installed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices, "look", lambda: H200)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    for name, words in (("nsys", "nsys is not installed"), ("rocprofv3", "rocprofv3 cannot time cuda kernels")):
        status, line = answer(capsys, [*ONE, "--profiler", name])
        assert status == EXIT_ENVIRONMENT
        assert f"--profiler: {words}" in line
    status, line = answer(capsys, [*ONE, "--gpu_ids", "7"])
    assert (status, "no GPU 7" in line) == (EXIT_INPUT, True)
    assert list(tmp_path.iterdir()) == []


def test_the_results_file_must_not_be_the_size_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "sizes.yaml").write_text("- {M: 1, N: 1, K: 1}\n")
    for name in ("sizes.yaml", "./sizes.yaml", str(tmp_path / "sizes.yaml")):
        status, line = answer(capsys, ["--gemm_size_file", "sizes.yaml", "--o", name])
        assert (status, "would be lost" in line) == (EXIT_INPUT, True)


@pytest.mark.parametrize(
    "argv", [[*ONE, "--arch", "sm_42"], ["--gemm_size_file", "x.yaml"], ["--profler"], ["-m", "0"]]
)
def test_debug_shows_the_traceback(capsys: pytest.CaptureFixture[str], argv: list[str]) -> None:
    status = main([*argv, "--debug"])
    shown = capsys.readouterr().err
    assert status == EXIT_INPUT
    assert "Traceback" in shown
    assert shown.splitlines()[-1].startswith("tune_gemm.py: ")


@pytest.mark.parametrize(
    ("raised", "status", "words"),
    [
        (
            OSError(28, "No space left on device", "x.csv"),
            EXIT_ENVIRONMENT,
            ["OSError", "No space left", "free some space"],
        ),
        (FileNotFoundError(2, "No such file", "nsys"), EXIT_ENVIRONMENT, ["nsys"]),
        (KeyboardInterrupt(), EXIT_INTERRUPTED, ["interrupted"]),
    ],
)
def test_what_breaks_a_run_from_outside(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    raised: BaseException,
    status: int,
    words: list[str],
) -> None:
    def breaks(*_: object) -> int:
        raise raised

    monkeypatch.setattr(pipeline, "tune", breaks)
    found, line = answer(capsys, ONE)
    assert found == status
    assert [word for word in words if word not in line] == []


@pytest.mark.parametrize("has_begun", [False, True])
def test_an_interrupted_command_says_that_it_goes_on_where_a_run_had_begun(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, has_begun: bool
) -> None:
    def interrupted(*_: object) -> int:
        with bug_report.belongs_to(tmp_path) if has_begun else nullcontext():
            raise KeyboardInterrupt

    monkeypatch.setattr(pipeline, "tune", interrupted)
    status, line = answer(capsys, ONE)
    assert status == EXIT_INTERRUPTED and ("goes on" in line) == has_begun


@pytest.mark.parametrize("width", [0, 60])
def test_a_last_line_ends_between_words_and_stands_behind_no_echo(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    text = "a sentence of a good many words " * 8
    for raised in (UserError(text), KeyboardInterrupt()):

        def breaks(*_: object, raised: BaseException = raised) -> int:
            raise raised

        screen = Screen(width)
        monkeypatch.setattr(pipeline, "tune", breaks)
        monkeypatch.setattr(cli, "consoles", lambda screen=screen: Consoles(screen.console, screen.console))
        main(ONE)
        lines = [line for line in screen.lines if "starting" not in line]
        assert not width or max(map(len, lines)) <= width
        assert width or len(lines) == 1
        assert (lines[0] == "") == (bool(width) and isinstance(raised, KeyboardInterrupt))
        assert not isinstance(raised, UserError) or " ".join(lines).endswith(text.strip())


def test_a_run_begins_by_the_short_name_of_what_it_tunes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """And not by the key with its hash, which is wider than a terminal."""
    screen = Screen(80)
    monkeypatch.setattr(pipeline, "tune", lambda *_: EXIT_OK)
    monkeypatch.setattr(cli, "consoles", lambda: Consoles(screen.console, screen.console))
    example = (ROOT / "examples" / "kernels" / "softmax.yaml").read_text().replace("[1000, 4096]", "1000")
    (tmp_path / "one.yaml").write_text(example.replace(": softmax.py", f": {ROOT}/examples/kernels/softmax.py"))
    main(["kernel", "--spec", str(tmp_path / "one.yaml")])
    (line,) = [line for line in screen.lines if line.endswith("starting")]
    assert "softmax_rows rows=4096 cols=1000 dtype=fp16" in line


@pytest.mark.parametrize(
    ("flag", "called"),
    [(None, "tune"), ("--benchmark", "benchmark"), ("--compare_wo_tuning", "compare_without_tuning")],
)
def test_the_exit_status_is_the_runs(monkeypatch: pytest.MonkeyPatch, flag: str | None, called: str) -> None:
    heard: list[RunOptions] = []
    monkeypatch.setattr(pipeline, called, lambda run_options, log, out: heard.append(run_options) or 1)
    assert main([*ONE, *([flag] if flag else [])]) == 1
    assert [entry.problem for entry in heard[0].entries] == [GemmProblem(64, 64, 64)]


@pytest.mark.parametrize("name", REPLACED)
def test_a_flag_that_has_no_use_here_says_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(pipeline, "tune", lambda *_: EXIT_OK)
    for spelt in (name, name.replace("_", "-")):
        assert main([*ONE, f"--{spelt}"]) == EXIT_OK
        assert capsys.readouterr().err.splitlines() == [f"--{name}: {REPLACED[name]}"]

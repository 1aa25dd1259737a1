"""Flags that change nothing get a line each; those that change something get none."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from samples import NO_GPU, ROOT
from tuning import environment as environment_of

from gemm_tuner.cli.main import consoles, main, run_options_from
from gemm_tuner.cli.options import build_parser
from gemm_tuner.cli.size_flags import read_sizes
from gemm_tuner.core.errors import EXIT_INPUT, EXIT_OK
from gemm_tuner.cute.problem import problem_of
from gemm_tuner.hosts import host_spec_file
from gemm_tuner.hosts.host_spec import HostProblem
from gemm_tuner.kernels import kernel_spec_file
from gemm_tuner.languages.together import names_of
from gemm_tuner.measure import device as devices
from gemm_tuner.moe.problem import MoeProblem
from gemm_tuner.pipeline import idle_flags
from gemm_tuner.pipeline import run as pipeline
from gemm_tuner.pipeline.run_identity import method
from gemm_tuner.pipeline.session import how_timed
from gemm_tuner.store.sizes import SizeEntry

ONE = ["-m", "64", "-n", "64", "-k", "64"]
MOE = MoeProblem("vllm", 64, 128, 768, 2048, 8)
TUNED = str(ROOT / "tests" / "data" / "h200_nsys_recording" / "tuned.yaml")


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(devices, "look", lambda: NO_GPU)
    monkeypatch.chdir(tmp_path)


def told(capsys: pytest.CaptureFixture[str], *argv: str) -> set[str]:
    """The flags of which reading the sizes says that they change nothing."""
    read_sizes(build_parser().parse(list(argv)), consoles().log)
    return {line.split()[0] for line in capsys.readouterr().err.splitlines() if "changes nothing" in line}


def of_run(source: str, *argv: str, task: str = "") -> set[str]:
    arguments = build_parser().parse((argv and [*ONE, *argv]) or ONE)
    run_options = run_options_from(arguments, read_sizes(arguments, consoles().log))
    return {line.split()[0] for line in idle_flags.of_run(run_options, source, task)}


SILENT = "- {M: 1, N: 2, K: 3}\n"
TYPED = "- {M: 1, N: 2, K: 3, dtype: fp16}\n"
HALF = TYPED + "- {M: 4, N: 5, K: 6}\n"
FILES = {
    "a silent entry": (SILENT, ["--dtype_a", "fp16"], set()),
    "the plain default of a silent entry": (SILENT, ["--dtype", "bf16", "--layout_a", "row", "--alpha", "1"], set()),
    "all entries": (TYPED, ["--dtype", "fp32"], {"--dtype"}),
    "the same value": (TYPED, ["--dtype_a", "fp16", "--dtype_b", "fp16"], {"--dtype_a", "--dtype_b"}),
    "some entries": (HALF, ["--dtype", "fp32"], set()),
    "another key": (TYPED, ["--layout_b", "col", "--bias"], set()),
    "a layout": ("- {M: 1, N: 2, K: 3, layout_b: col}\n", ["-col_b", "-col_a"], {"-col_b"}),
    "what only goes together": ("- {M: 1, N: 2, K: 3, scaling: tensor}\n", ["--dtype", "int8"], set()),
}


@pytest.mark.parametrize(("text", "argv", "idle"), FILES.values(), ids=list(FILES))
def test_flags_about_sizes(capsys: pytest.CaptureFixture[str], text: str, argv: list[str], idle: set[str]) -> None:
    Path("sizes.yaml").write_text(text)
    assert told(capsys, "--gemm_size_file", "sizes.yaml", *argv) == idle


def test_a_results_file_says_all_itself(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["-dtype_a", "fp16", "--bias_vector", "--beta", "2", "--batch", "3", "--iters", "9"]
    assert told(capsys, "--gemm_size_file", TUNED, *argv) == {"-dtype_a", "--bias_vector", "--beta", "--batch"}


def test_a_size_by_flags_has_no_idle_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert told(capsys, *ONE, "--dtype", "bf16", "--layout_b", "row") == set()


def test_flags_about_timing() -> None:
    timing = ["--search", "full", "--budget", "1s", "--jobs", "4", "--iters", "3", "--no_warmup"]
    idle = {"--search", "--budget", "--jobs", "--iters", "--no_warmup"}
    assert of_run("predicted", *timing) == idle
    assert of_run("measured", *timing) == set()
    assert of_run("replayed", *timing) == {"--jobs", "--iters"}
    assert of_run("predicted", "--compare", "--seed", "3", "--verbose") == set()
    assert of_run("measured", "--min_improvement", "3") == {"--min_improvement"}
    assert of_run("measured", "--search", "quick", "--iters", "3", task="--benchmark") == {"--search"}
    assert of_run("replayed", "--starts-per-round=2") == {"--starts-per-round"}
    assert of_run("predicted", "--wait", "5m") == of_run("replayed", "--wait", "5m") == {"--wait"}
    assert of_run("measured", "--no_wait") == of_run("predicted") == set()


def kernel_entries(kind: str) -> tuple[SizeEntry, ...]:
    folder = ROOT / "examples" / "kernels"
    if kind == "moe":
        return (SizeEntry(MOE),)
    if kind == "hosts":
        host, cases = host_spec_file.read("", f"{folder / 'layer_norm.py'}:run", folder / "layer_norm.yaml")
        return tuple(SizeEntry(HostProblem.of(host, case)) for case in cases)
    spec, cases = kernel_spec_file.read(folder / ("cute_quack.yaml" if kind == "cute" else "softmax.yaml"), "")
    return tuple(SizeEntry(problem_of(spec, case)) for case in cases)


@pytest.mark.parametrize("kind", ["kernels", "cute", "hosts", "moe", "gemm"])
def test_flags_about_operands_change_nothing_where_others_make_them(kind: str) -> None:
    """The header says how they were timed; for GEMMs the flags have an effect."""
    users = kind != "gemm"
    arguments = build_parser().parse([*ONE, "--rotating_tensor", "64", "--init_type", "zeros", "--seed", "3"])
    entries = kernel_entries(kind) if users else read_sizes(arguments, consoles().log)
    assert {entry.problem.kind for entry in entries} == {kind}
    run_options = run_options_from(arguments, entries)
    idle = {line.split()[0] for line in idle_flags.of_run(run_options, "measured")}
    assert idle == ({"--rotating_tensor", "--init_type"} if users else set())
    how = how_timed(run_options, environment_of(1))
    assert (how["l2"], how["init_type"], how["seed"]) == (
        ("flushed", "randn", 3) if users else ("rotating", "zeros", 3)
    )
    plain = run_options_from(build_parser().parse([*ONE, "--seed", "3"]), entries)
    assert (method(run_options, is_timed=True) == method(plain, is_timed=True)) is users, "a run goes on with either"


@pytest.mark.parametrize("task", ["--benchmark", "--compare_wo_tuning"])
def test_given_configurations_are_compiled_whatever_families_are_named(task: str) -> None:
    arguments = build_parser().parse([*ONE, task, "--families", "gemm_tile"])
    run_options = run_options_from(arguments, read_sizes(arguments, consoles().log))
    assert "cute" in names_of(run_options.language)
    assert "--families" in {line.split()[0] for line in idle_flags.of_run(run_options, "measured", task)}


def test_a_run_says_so_before_it_begins(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    class Begun(Exception):
        pass

    def begins(*_: object, **__: object) -> None:
        raise Begun

    monkeypatch.setattr(pipeline, "opened", begins)
    for doing in ([], ["--gemm_size_file", TUNED, "--compare_wo_tuning"]):
        arguments = build_parser().parse([*(doing or ONE), "--budget", "5s"])
        run_options = run_options_from(arguments, read_sizes(arguments, consoles().log))
        run = pipeline.compare_without_tuning if doing else pipeline.tune
        with pytest.raises(Begun):
            run(run_options, consoles().log, consoles().out)
        assert "--budget changes nothing: without a GPU" in capsys.readouterr().err


class Piped:
    """Standard input with some bytes in it."""

    def __init__(self, data: bytes) -> None:
        self.buffer = io.BytesIO(data)


def test_sizes_from_standard_input(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", Piped(SILENT.encode()))
    arguments = build_parser().parse(["--gemm_size_file", "-", "--dtype", "fp16"])
    (entry,) = read_sizes(arguments, consoles().log)
    assert (entry.problem.key, capsys.readouterr().err) == ("1x2x3_fp16_nn", "")
    monkeypatch.setattr("sys.stdin", Piped(Path(TUNED).read_bytes()))
    assert len(read_sizes(arguments, consoles().log)) == 3
    assert "--dtype changes nothing" in capsys.readouterr().err
    bad = {b"- {M: 1, N: 2, KK: 3}\n": "entry 1 (line 1)", b"": "", Path(TUNED).read_bytes()[:-1]: "cut short"}
    for data, words in bad.items():
        monkeypatch.setattr("sys.stdin", Piped(data))
        assert main(["--gemm_size_file", "-"]) == EXIT_INPUT
        line = capsys.readouterr().err
        assert line.startswith("tune_gemm.py: standard input") and words in line


def test_a_dry_run_says_what_this_machine_would_do(capsys: pytest.CaptureFixture[str]) -> None:
    """Flags that name GPUs are no hindrance where there is none."""
    thin = "families:\n  gemm_tile: {BLOCK_SIZE_M: [32, 64], BLOCK_SIZE_N: [32], BLOCK_SIZE_K: [32], GROUP_SIZE_M: [1]"
    thin += ", SPLIT_K: [1], num_warps: [4], num_stages: [2, 3]}\n"
    space = (ROOT / "rules" / "space_sm_90.yaml").read_text()
    Path("space.yaml").write_text(space[: space.index("families:")] + thin)
    for argv in ([], ["--arch", "sm_90"], ["--ngpus", "2"], ["--gpu_ids", "0,3"]):
        assert main([*ONE, "--space", "space.yaml", "--no_heuristics", "--dry_run", *argv]) == EXIT_OK, (
            capsys.readouterr().err
        )
        text = " ".join(capsys.readouterr().out.split())
        assert "5 kernels to compile on" in text and "at most 3 to check in Triton's interpreter" in text
        assert f"({2 if len(argv) == 2 and argv[0] != '--arch' else 1} x NVIDIA H200)" in text

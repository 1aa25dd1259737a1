"""--help, and what words that are no flags are answered with."""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console
from samples import ROOT

from gemm_tuner.cli import commands
from gemm_tuner.cli import main as cli
from gemm_tuner.cli.commands import SUBCOMMANDS, Consoles
from gemm_tuner.cli.main import main
from gemm_tuner.cli.options import build_parser
from gemm_tuner.cli.parser import Parser
from gemm_tuner.core.errors import EXIT_ENVIRONMENT, EXIT_INPUT, UserError
from gemm_tuner.pipeline import run as pipeline


def test_help_lists_every_subcommand_with_what_it_does(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    text = capsys.readouterr().out
    assert len(text.splitlines()) < 110
    for name, what in SUBCOMMANDS.items():
        assert [line for line in text.splitlines() if line.split(maxsplit=1) == [name, what]], name
    assert "tune_gemm.py SUBCOMMAND" in text


def test_help_has_an_entry_for_the_flags_of_the_usual_jobs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        main(["--help"])
    lines = capsys.readouterr().out.splitlines()
    entries = {line.split()[0].rstrip(",") for line in lines if line.startswith("  --")}
    missing = {"--compare", "--serve", "--update", "--search", "--fresh", "--explain"} - entries
    assert missing == set() and len(lines) < 110


HELPS = [["--help"], ["--help_all"], *([name, "--help"] for name in SUBCOMMANDS)]


@pytest.mark.parametrize("words", HELPS, ids=" ".join)
def test_help_fits_80_columns_and_says_the_exit_statuses(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        main(words)
    text = capsys.readouterr().out
    assert [line for line in text.splitlines() if len(line) > 80] == []
    assert "exit status: 0 " in text


CALLED = {
    "tune_gemm.py": "tune_gemm.py",
    "/opt/tuner/tune_gemm.py": "tune_gemm.py",
    "/usr/local/bin/tune-gemm": "tune-gemm",
    "/site-packages/gemm_tuner/cli/__main__.py": "python -m gemm_tuner.cli",
    "-c": "tune_gemm.py",
}


@pytest.mark.parametrize(("argv0", "name"), CALLED.items())
def test_the_program_is_named_as_it_was_called(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, argv0: str, name: str
) -> None:
    monkeypatch.setattr(sys, "argv", [argv0])
    assert main(["help"]) == EXIT_INPUT
    line = capsys.readouterr().err
    assert line.startswith(f"{name}: ")
    assert f"; {name} --help lists" in line
    for words in HELPS:
        with pytest.raises(SystemExit):
            main(words)
        text = capsys.readouterr().out
        assert f"usage: {name} " in text
        others = set(CALLED.values()) - {name}
        commands = [line.strip() for line in text.splitlines() if "--" in line]
        assert [line for line in commands if line.startswith(tuple(f"{other} " for other in others))] == []


WORDS = {
    "help": (["help"], "tune_gemm.py --help"),
    "help of a subcommand": (["help", "export"], "each subcommand has a --help"),
    "a misspelt help": (["hlep"], "tune_gemm.py --help"),
    "tune": (["tune", "sizes.yaml"], "flags alone tune: tune_gemm.py --gemm_size_file FILE"),
    "version": (["version"], "tune_gemm.py --version"),
    "a misspelt subcommand": (["reprot", "results/x"], "did you mean the subcommand report?"),
    "an underscore": (["serve_check", "out"], "did you mean the subcommand serve-check?"),
    "a flag before the subcommand": (["--verbose", "check"], "a subcommand comes first: tune_gemm.py check ..."),
    "a bare file": (["sizes.yaml"], "name a file of sizes by --gemm_size_file"),
    "something else": (["qqq"], "--help lists the usual flags and all subcommands"),
    "a subcommand alone": (["export"], "tune_gemm.py export --help"),
    "an unheard-of flag of a subcommand": (["report", "x", "--zzzz"], "tune_gemm.py report --help"),
    "nothing": ([], "--help lists the usual flags and all subcommands"),
}


@pytest.mark.parametrize(("words", "hint"), WORDS.values(), ids=list(WORDS))
def test_a_word_that_is_no_flag_gets_a_hint(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: list[str], hint: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(words) == EXIT_INPUT
    (line,) = capsys.readouterr().err.splitlines()
    assert hint in line


def test_the_command_line_starts_without_tables_and_kernels() -> None:
    """What takes long to import is imported behind the first line on the terminal."""
    code = "import sys, gemm_tuner.cli.main as cli; cli.options.build_parser().parse(['-m', '1']); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    heavy = {"pandas", "numpy", "scipy", "sklearn", "torch", "triton", "jinja2"}
    assert heavy & set(done.stdout.split()) == set()


def test_a_terminal_shows_a_line_before_the_work_is_loaded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    shown = io.StringIO()
    terminal = Console(file=shown, force_terminal=True, width=80)
    monkeypatch.setattr(cli, "consoles", lambda: Consoles(terminal, terminal))
    before: list[str] = []
    monkeypatch.setattr(pipeline, "tune", lambda *_: before.append(shown.getvalue()) or 0)
    assert main(["-m", "5", "-n", "6", "-k", "7"]) == 0
    assert "5x6x7" in before[0]


@pytest.mark.parametrize("words", HELPS[1:], ids=" ".join)
def test_o_is_the_output_everywhere(capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    with pytest.raises(SystemExit):
        main(words)
    assert "  -o, --output" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("parser", "words", "flag"),
    [
        (build_parser, (), "min_improvement"),
        (lambda: commands.build_parser("compare"), ("a", "b"), "tolerance"),
        (lambda: commands.build_parser("compact"), ("run",), "loss"),
    ],
)
def test_percentages_are_written_alike(parser: Callable[[], Parser], words: tuple[str, ...], flag: str) -> None:
    def parsed(text: str) -> object:
        return getattr(parser().parse([*words, f"--{flag}={text}"]), flag)

    assert getattr(parser().parse([*words]), flag) == parsed("2%")
    assert [parsed(text) for text in ("3", "3%", " 3 % ", "0.5%", "0", "100")] == [3.0, 3.0, 3.0, 0.5, 0.0, 100.0]
    with pytest.raises(UserError, match=r"write '0\.02%' or '2%'"):
        parsed("0.02")
    for text in ("-1", "101", "nan%", "x", "1e-2", "", "%"):
        with pytest.raises(UserError, match="no percentage"):
            parsed(text)


def test_a_python_without_the_packages_is_told_in_one_line() -> None:
    words = [sys.executable, "-S", "tune_gemm.py", "--help"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == EXIT_ENVIRONMENT and done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert f"is not installed for {sys.executable}" in line


def test_a_module_of_the_project_that_is_not_there_is_no_missing_package(tmp_path: Path) -> None:
    shutil.copy(ROOT / "tune_gemm.py", tmp_path)
    (tmp_path / "gemm_tuner").mkdir()
    (tmp_path / "gemm_tuner" / "__init__.py").touch()
    words = [sys.executable, "tune_gemm.py"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 1 and "No module named 'gemm_tuner.cli'" in done.stderr

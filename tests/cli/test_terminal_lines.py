"""Every command's lines end between words on a terminal, and are whole in a pipe."""

from __future__ import annotations

from pathlib import Path

import pytest
from samples import ROOT
from screens import TUNED, Screen

from gemm_tuner.cli import main as cli
from gemm_tuner.cli.commands import Consoles
from gemm_tuner.pipeline.run_log import RunLog
from gemm_tuner.system.terminal_table import print_line

LONG = (
    "waiting for a GPU, which is in use by process 4711 (python tune_gemm.py --gemm_size_file sizes.yaml --search full)"
)
PATH = "/a/" + "very_" * 20 + "long/path"
COMMANDS = {
    "compare": ["compare", str(TUNED[0]), str(TUNED[1])],
    "export": ["export", str(TUNED[0]), "--to", "vllm", "-o", "out"],
    "sizes": [
        "sizes",
        "--from",
        str(ROOT / "tests" / "data" / "size_sources" / "vllm.log"),
        "--m",
        "1,16",
        "-o",
        "sizes.yaml",
    ],
    "refused": ["report", str(ROOT / "results" / "tuned")],
    "explained": ["-m", "64", "-n", "64", "-k", "64", "--arch", "sm_86", "--explain", "num_warps=16"],
    "idle": ["--gemm_size_file", str(TUNED[0]), "--dtype", "fp16", "--arch", "sm_90", "--explain", "num_warps=16"],
}


def test_a_line_ends_between_words_on_a_terminal_and_is_whole_in_a_pipe() -> None:
    for text in (LONG, f"results: {PATH}"):
        narrow, piped = Screen(60), Screen(0)
        RunLog(narrow.console, narrow.console).say(text)
        print_line(piped.console, text)
        assert piped.lines == [text]
        assert len(narrow.lines) > 1 and " ".join(narrow.lines) == text
        assert all(len(line) <= 60 or " " not in line for line in narrow.lines)


@pytest.mark.parametrize("words", COMMANDS.values(), ids=list(COMMANDS))
def test_lines_of_commands_do_not_break_words(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    told: dict[int, list[str]] = {}
    for width in (0, 80):
        screen = Screen(width)
        monkeypatch.setattr(cli, "consoles", lambda screen=screen: Consoles(screen.console, screen.console))
        cli.main(words)
        told[width] = screen.lines
    assert all(len(line) <= 80 or " " not in line.strip() for line in told[80])
    whole = [line for line in told[0] if len(line) > 80 and "  " not in line.strip()]  # not of a table
    short = set(" ".join(told[80]).split())
    broken = [word for line in whole for word in line.split() if word.isalpha() and word not in short]
    assert whole and broken == []

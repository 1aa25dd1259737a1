"""Progress: bars on a terminal, lines with counts when piped."""

from __future__ import annotations

import io
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from rich.console import Console
from screens import Screen

from gemm_tuner.system import progress


def test_piped_progress_ends_with_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    console = Console(file=io.StringIO())
    with progress.step("compile", 3, console) as step:
        step.advance()
        step.advance(2)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("compile: 3/3 in ")
    assert lines[0].endswith(" s")


def test_piped_progress_says_how_long_it_takes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = iter([0.0, 5.0, 10.0, 10.0, 12.0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(now))
    with progress.step("screen", 4, Console(file=io.StringIO())) as step:
        step.advance()  # after 5 s: nothing yet
        step.advance()  # after 10 s
    assert capsys.readouterr().err.splitlines() == [
        "screen: 2/4, about 10 s left",
        "screen: 2/4 in 12.0 s",
    ]


def test_a_terminal_gets_a_bar_with_counts() -> None:
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=100)
    with progress.step("finals", 8, console) as step:
        step.advance(5)
        step.advance(3)
    assert "finals" in stream.getvalue()
    assert "8/8" in stream.getvalue()


@pytest.mark.parametrize("width", [60, 80, 100, 120])
@pytest.mark.parametrize("title", ["compile for checks", "check"])
def test_a_bar_fits_the_terminal_and_its_counts_are_whole(width: int, title: str) -> None:
    for total in (3, 12345):
        screen = Screen(width)
        with progress.step(title, total, screen.console) as step:
            step.advance(total - 1)
        lines = [line for line in screen.lines if title in line and f"{total - 1}/{total}" in line]
        assert lines  # more than one where the machine is slow: the bar is drawn again every 0.1 s
        assert all(len(line) <= width and line.endswith("left") for line in lines)


def test_a_step_counts_what_several_threads_do(capsys: pytest.CaptureFixture[str]) -> None:
    with progress.step("screen", 4000, Console(file=io.StringIO())) as step, ThreadPoolExecutor(8) as threads:
        for _ in range(4000):
            threads.submit(step.advance)
    assert capsys.readouterr().err.startswith("screen: 4000/4000 in ")


def shown(screen: Screen, text: str) -> bool:
    """Whether a terminal shows a text; waits until it does."""
    until = time.monotonic() + 60
    while not any(text in line for line in screen.lines) and time.monotonic() < until:
        time.sleep(0.01)
    return any(text in line for line in screen.lines)


@pytest.mark.parametrize("width", [60, 80])
def test_a_long_wait_says_on_a_terminal_what_is_waited_for(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    monkeypatch.setattr(progress, "WAIT_SHOWN_S", 0.0)
    screen = Screen(width)
    with progress.waiting("apply the rules", screen.console, 20) as step:
        step.advance(7)
        assert shown(screen, "7/20")
    assert all(len(line) <= width for line in screen.lines)


def test_a_wait_that_fails_ends_what_it_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "WAIT_SHOWN_S", 0.0)
    screen = Screen(80)
    with pytest.raises(ZeroDivisionError), progress.waiting("look for GPUs", screen.console):
        assert shown(screen, "look for GPUs")
        raise ZeroDivisionError
    before = list(screen.lines)
    with progress.step("compile", 1, screen.console) as step:  # a bar that is left alone below
        step.advance()
    after = screen.lines[len(before) :]
    assert after and not any("look for GPUs" in line for line in after)


def test_a_short_wait_and_one_in_a_pipe_show_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "WAIT_SHOWN_S", 600.0)
    terminal, pipe = Screen(80), Screen(0)
    for screen in (terminal, pipe):
        with progress.waiting("look for GPUs", screen.console):
            screen.console.print("a line")
    assert terminal.lines == pipe.lines == ["a line"]
    assert capsys.readouterr().err == ""

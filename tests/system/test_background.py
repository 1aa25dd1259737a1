"""One thing at a time is done beside a wait, and its error is raised by who waits for it."""

from __future__ import annotations

import threading

import pytest

from gemm_tuner.system.background import Background, begun_once


def test_what_begins_runs_beside_its_caller_and_has_ended_after_end() -> None:
    beside, done = threading.Barrier(2), list[str]()
    background = Background("test")

    def first() -> None:
        beside.wait(timeout=60)
        done.append("first")

    background.begin(first)
    assert done == []
    beside.wait(timeout=60)
    background.begin(lambda: done.append("second"))  # waits for the first
    background.end()
    assert done == ["first", "second"]


def test_an_error_is_raised_once() -> None:
    background = Background("test")
    background.begin(lambda: [][0])
    with pytest.raises(IndexError):
        background.end()
    background.end()
    background.begin(lambda: [][0])
    background.wait()
    with pytest.raises(IndexError):
        background.begin(lambda: None)


@pytest.mark.parametrize("now", [False, True])
def test_what_is_begun_once_is_begun_when_first_asked_for(now: bool) -> None:
    beside, begun = threading.Barrier(2), list[str]()

    def work() -> None:
        begun.append("begun")
        beside.wait(timeout=60)

    begin = begun_once(work, "test", now=now)
    if not now:
        assert not begun
        begin()
    beside.wait(timeout=60)
    begin()
    assert begun == ["begun"]

"""Every moment of a run belongs to a stage, or to a part outside the stages."""

from __future__ import annotations

import io
import time

import pytest
from rich.console import Console

from gemm_tuner.pipeline.run_log import RunLog


@pytest.fixture
def log() -> RunLog:
    silent = Console(file=io.StringIO())
    return RunLog(silent, silent)


def test_stages_and_parts_add_up_to_all_that_has_passed(log: RunLog) -> None:
    log.passed("start")
    with log.stage("search"):
        pass
    begun = time.monotonic()
    log.add_stage("wait", begun)
    with log.stage("search"):
        pass
    before = time.monotonic()
    log.passed("end")
    assert before <= log.began + log.accounted_s <= time.monotonic()
    assert sum((*log.stage_seconds.values(), *log.outside_seconds.values())) == pytest.approx(log.accounted_s)
    assert list(log.stage_seconds) == ["search", "wait"]
    assert list(log.outside_seconds) == ["start", "before search", "before wait", "end"]


def test_what_passes_in_a_stage_is_not_outside(log: RunLog) -> None:
    with log.stage("check"):
        with log.stage("compile"):
            log.passed("a part")
        log.passed("another part")
    assert list(log.outside_seconds) == ["before check"]
    assert log.stage_seconds["compile"] <= log.stage_seconds["check"] <= log.accounted_s


def test_a_stage_that_fails_has_passed_too(log: RunLog) -> None:
    with pytest.raises(KeyboardInterrupt), log.stage("screen"):
        raise KeyboardInterrupt
    log.passed("end")
    assert list(log.stage_seconds) == ["screen"] and list(log.outside_seconds) == ["before screen", "end"]


def test_the_time_between_stages_is_from_the_first_begin_to_the_last_end(log: RunLog) -> None:
    begun = time.monotonic()
    log.add_stage("screen", begun)
    for name in ("finals", "screen", "check", "check"):
        with log.stage(name):
            pass
    ended = time.monotonic()
    found = log.between_s("screen", "check")
    assert found is not None
    assert log.stage_seconds["screen"] <= found <= ended - begun
    assert log.between_s("screen", "compile") is None

"""Where the time of a profiler's start goes."""

from __future__ import annotations

import pytest

from gemm_tuner.launch.journal import ADMITTED, IMPORTED, LAUNCHED, OPENED, READY, REST, TURN, Finished, Reached, Spent
from gemm_tuner.measure.phases import PHASES, REPORTING, added, phases_of


def reached(**at: float) -> list[Reached]:
    return [Reached(milestone, unix_s) for milestone, unix_s in at.items()]


def test_every_second_of_a_start_belongs_to_one_phase() -> None:
    at = {IMPORTED: 102.0, ADMITTED: 104.0, OPENED: 105.0, TURN: 110.0, READY: 111.5, LAUNCHED: 114.0}
    found = phases_of([*reached(**at), Spent(REST, 0.7), Finished()], 100.0, 116.5, 116.75, 117.0)
    assert {phase: found[phase] for phase in PHASES} == {
        "start": 2.0, "wait": 7.0, "open": 1.0, "prepare": 1.5, "launch": 2.5, "report": 3.0,
    }  # fmt: skip
    assert [found[part] for part in REPORTING] == [2.5, 0.25, 0.25]
    assert found[REST] == 0.7


def test_a_start_that_had_to_wait_for_nobody_waited_no_time() -> None:
    found = phases_of(reached(**{IMPORTED: 104.0, READY: 105.0, LAUNCHED: 106.0}), 100.0, 107.0, 107.0, 107.0)
    assert (found["wait"], found["prepare"], sum(found[phase] for phase in PHASES)) == (0.0, 1.0, 7.0)


def test_a_recording_of_before_the_gpu_was_opened_ahead_waited_for_the_turn() -> None:
    found = phases_of(reached(**{IMPORTED: 104.0, TURN: 106.0, READY: 107.0, LAUNCHED: 108.0}), 100.0, *[109.0] * 3)
    assert (found["wait"], found["open"], found["prepare"]) == (2.0, 0.0, 1.0)


@pytest.mark.parametrize("journal", [[], reached(**{IMPORTED: 104.0, READY: 105.0})])
def test_a_start_that_was_cut_off_has_none(journal: list[Reached]) -> None:
    assert phases_of(journal, 100.0, 200.0, 200.0, 200.0) == {}


def test_starts_add_up_by_phase() -> None:
    assert added({}, {"start": 1.0}, {"start": 2.0, "wait": 1.0}) == {"start": 3.0, "wait": 1.0}

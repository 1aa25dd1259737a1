"""Checks that are made before the ranking is known count as if they were made in its order."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import round_batches
from round_batches import ONE, TWO
from tuning import StandInGpu, scripts_of, session, state_of

from gemm_tuner.core.errors import EnvironmentFault
from gemm_tuner.core.records import Status, Verdict
from gemm_tuner.launch.journal import Begin, End, Fail, Judged
from gemm_tuner.launch.plan import VERIFY, Method, Plan, Work
from gemm_tuner.measure.fleet import Fleet
from gemm_tuner.measure.launcher import Checker
from gemm_tuner.measure.launcher_events import Died, Heard, OnEvent, ignore
from gemm_tuner.pipeline.checks_ahead import ChecksAhead
from gemm_tuner.pipeline.finals_together import Process, Turns
from gemm_tuner.pipeline.verify import Verification
from gemm_tuner.space.size_state import SizeState

CONFIGS = round_batches.CONFIGS[:4]
A, B, C, D = NAMES = round_batches.NAMES[:4]

pytestmark = pytest.mark.usefixtures("in_a_folder")


@dataclass
class Says(Checker):
    """A checker of ONE that says these events, and then raises an error, if there is one."""

    events: list[Heard] = field(default_factory=list)
    error: BaseException | None = None

    def verdicts(self, plan: Plan, folder: Path, on_event: OnEvent = ignore) -> None:
        for event in self.events:
            on_event(ONE, event)
        if self.error is not None:
            raise self.error


def checked(name: str, *, ok: bool = True) -> list[Heard]:
    verdicts = [Judged.of(0, Verdict(at, name, ok, 0.0, 0.1, message="" if ok else "off")) for at in (ONE, TWO)]
    return [Begin(0, name), *verdicts, End(0, name)]


def ahead(events: Iterable[list[Heard]], error: BaseException | None = None) -> ChecksAhead:
    checker = Says([event for some in events for event in some], error)
    plan = Plan(VERIFY, ("a.py",), (Work(ONE, ((0, A),)),), Method())
    one = ChecksAhead(checker, lambda: (plan, Path()))
    one.begin()
    return one


def told(one: ChecksAhead, *, all_of_them: bool = False) -> tuple[str | None, list[str], SizeState]:
    """(what is chosen, what is left to check, the state), with the ranking A, B, C, D."""
    chosen: list[str | None] = []
    state = state_of(ONE, CONFIGS)
    order = [(state, NAMES)]
    verification = Verification(order, lambda _, name, __: chosen.append(name), all_of_them=all_of_them)
    left = one.tell(verification, order)
    return (chosen[0] if chosen else None), [name for _, names in left for name in names], state


def test_the_best_of_the_ranking_is_taken_and_not_what_was_heard_first() -> None:
    one = ahead([checked(C), checked(B), checked(A)])
    one.end()
    assert told(one)[:2] == (A, [])


def test_a_wrong_one_is_booked_only_if_it_would_have_been_checked() -> None:
    one = ahead([checked(B), checked(A, ok=False), checked(C, ok=False)])
    one.end()
    chosen, left, state = told(one)
    assert (chosen, left) == (B, [])
    assert {name: row["status"] for name, row in state.rows.items()} == {A: "wrong"}


@pytest.mark.parametrize("all_of_them", [False, True])
def test_what_is_behind_one_of_which_nothing_is_known_is_left(all_of_them: bool) -> None:
    """Otherwise it would be taken before the better one is checked."""
    one = ahead([checked(A, ok=False), checked(C)])
    one.end()
    assert told(one, all_of_them=all_of_them)[:2] == (None, [B, C, D])


def test_with_all_to_be_checked_the_first_right_one_counts_when_all_are_known() -> None:
    one = ahead([checked(D), checked(C, ok=False), checked(B), checked(A, ok=False)])
    one.end()
    chosen, left, state = told(one, all_of_them=True)
    assert (chosen, left) == (B, [])
    assert {name: row["status"] for name, row in state.rows.items()} == {A: "wrong", C: "wrong"}


def test_a_check_that_did_not_end_says_nothing_and_one_that_began_again_its_last() -> None:
    one = ahead([checked(A)[:-1], checked(B)])
    one.end()
    assert told(one)[:2] == (None, NAMES)
    again = ahead([checked(A, ok=False)[:2], checked(A)])
    again.end()
    assert told(again)[:2] == (A, [])


def test_a_crash_is_known_too() -> None:
    one = ahead([[Begin(0, A), Died(A, "signal SIGSEGV")], checked(B)])
    one.end()
    chosen, left, state = told(one)
    assert (chosen, left, state.rows[A]["status"]) == (B, [], "crashed")


@pytest.mark.parametrize("error", [EnvironmentFault("the GPU is gone"), KeyboardInterrupt()])
def test_what_was_heard_before_the_gpu_or_the_run_was_lost_stays(error: BaseException) -> None:
    one = ahead([checked(A)], error)
    one.end()
    assert told(one)[:2] == (A, [])


def test_a_bug_is_not_kept_secret() -> None:
    one = ahead([], ZeroDivisionError("a bug"))
    with pytest.raises(ZeroDivisionError, match="a bug"):
        one.end()


def test_it_begins_once_and_ends_if_it_never_began() -> None:
    plans: list[int] = []
    one = ChecksAhead(Says(), lambda: plans.append(1))  # type: ignore[arg-type,func-returns-value]
    one.end()
    assert not plans
    for _ in range(2):
        one.begin()
    one.end()
    assert plans == [1] and told(one)[:2] == (None, NAMES)


def test_the_last_to_begin_is_known_by_the_first_that_each_has_timed() -> None:
    """Or that has failed. What has only begun, or was lost, may have been loaded before the turn."""
    calls: list[int] = []
    turns = Turns({ONE: 0}.get, lambda: calls.append(len(heard)))
    turns.expect([Process(number, {}, [Work(ONE, ())]) for number in range(3)])
    heard: list[Any] = []
    ended, failed, began = End(0, A), Fail(0, A, Status.LAUNCH_ERROR, "off"), Begin(0, A)
    lost = Fail(0, A, Status.CRASHED, "illegal memory access")
    events = (0, ended), (1, began), (1, lost), (2, failed), (0, ended), (2, ended), (1, ended), (1, began), (0, ended)
    for number, event in events:
        turns.heard_by(number, lambda *event: heard.append(event))(ONE, event)
    assert calls == [7] and len(heard) == 9


def test_the_last_to_begin_is_the_last_of_all_gpus() -> None:
    """Else what follows would use one of them while another process has its turn there. Of a process that has no sizes
    on a GPU nothing is waited for."""
    calls: list[int] = []
    turns = Turns({ONE: 0, TWO: 1}.get, lambda: calls.append(len(heard)))
    heard: list[Any] = []
    of_both, of_one = (Process(0, {}, [Work(size, ()) for size in (ONE, TWO)]), Process(1, {}, [Work(ONE, ())]))
    turns.expect([of_both, of_one])
    for number, size in (0, ONE), (1, ONE), (1, ONE), (0, TWO), (0, TWO):
        turns.heard_by(number, lambda *event: heard.append(event))(size, End(0, A))
    turns.end(1)
    assert calls == [4]


def test_a_process_that_has_ended_is_not_waited_for() -> None:
    """All that it had on a GPU may have crashed, or have moved from one that died."""
    calls: list[bool] = []
    turns = Turns({ONE: 0, TWO: 1}.get, lambda: calls.append(True))
    turns.expect([Process(number, {}, [Work(size, ()) for size in (ONE, TWO)]) for number in range(2)])
    for number in range(2):
        turns.heard_by(number, lambda *event: None)(ONE, End(0, A))
        turns.heard_by(number, lambda *event: None)(TWO, Fail(1, A, Status.CRASHED, "illegal memory access"))
    turns.end(0)
    assert not calls
    turns.end(1)
    assert calls == [True]


def test_the_last_to_begin_is_known_when_it_is_known_who_follows() -> None:
    calls: list[bool] = []
    turns = Turns({ONE: 0}.get, lambda: calls.append(True))
    turns.heard_by(0, lambda *event: None)(ONE, End(0, A))
    assert not calls
    turns.expect([Process(0, {}, [Work(ONE, ())])])
    assert calls == [True]


@dataclass
class OpensChecks(StandInGpu):
    opened: list[Plan] = field(default_factory=list)

    def open_check(self, plan: Plan) -> None:
        self.opened.append(plan)


def test_launchers_of_checks_open_for_the_smallest_size_and_know_all_finalists(tmp_path: Path) -> None:
    states = [state_of(size, CONFIGS) for size in (ONE, TWO)]
    finalists = [(states[0], [A, B]), (states[1], [C])]
    gpu = OpensChecks(overlaps=True)
    stage = session(tmp_path, ONE, TWO).check_stage(scripts_of(states), None)
    with stage.beside_finals(Fleet([gpu], print), finalists, lambda most: finalists):
        (plan,) = gpu.opened
    assert [(work.problem, [name for _, name in work.entries]) for work in plan.work] == [
        (TWO, []), (ONE, [A, B]), (TWO, [C])
    ]  # fmt: skip

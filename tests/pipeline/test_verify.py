"""Following a check: best first, the wrong one is booked, the next best takes its turn."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from samples import config, device, problem

from gemm_tuner.core.records import Status, Verdict
from gemm_tuner.core.script import Script
from gemm_tuner.gemm.config import KernelConfig
from gemm_tuner.gemm.problem import GemmProblem
from gemm_tuner.launch.journal import Begin, End, Fail, Judged
from gemm_tuner.launch.plan import VERIFY
from gemm_tuner.measure.launcher_events import Died
from gemm_tuner.pipeline import prepare
from gemm_tuner.pipeline.verify import Verification, verify_plan
from gemm_tuner.space.size_state import SizeState
from gemm_tuner.store.store import Store

ONE, TWO = problem(512, 512, 512), problem(64, 64, 64)
ODD = problem(513, 509, 511)
A, B, C = (config(num_stages=stages) for stages in (2, 3, 4))


def state_of(size: GemmProblem, *configs: KernelConfig) -> SizeState:
    kept = {one.name: one for one in configs}
    return replace(prepare.given_state(size, configs[0], device("sm_90")), kept=kept)


class Heard:
    """A verification of ONE with A, B, C and of TWO with B, and what it decided."""

    def __init__(self, folder: Path, *, all_of_them: bool = False) -> None:
        self.calls: list[tuple[GemmProblem, str | None, list[Verdict]]] = []
        self.one, self.two = state_of(ONE, A, B, C), state_of(TWO, B)
        order = [(self.one, [A.name, B.name, C.name]), (self.two, [B.name])]
        self.store = Store(folder / "run.sqlite")
        self.check = Verification(order, lambda *call: self.calls.append(call), self.store, all_of_them=all_of_them)

    def verdict(self, size: GemmProblem, config: KernelConfig, *, ok: bool, at: GemmProblem | None = None) -> None:
        verdict = Verdict(at or size, config.name, ok, 0.5, 0.25, (3, 4), "" if ok else "off by 7 in row 3")
        self.check.hear(size, Judged.of(0, verdict))

    def checked(self, size: GemmProblem, config: KernelConfig, *, even: bool = True, odd: bool = True) -> None:
        self.check.hear(size, Begin(0, config.name))
        self.verdict(size, config, ok=even)
        self.verdict(size, config, ok=odd, at=ODD)
        self.check.hear(size, End(0, config.name))

    def decided(self) -> list[tuple[GemmProblem, str | None]]:
        return [(size, name) for size, name, _ in self.calls]


@pytest.fixture
def heard(tmp_path: Path) -> Heard:
    return Heard(tmp_path)


def test_the_best_is_right(heard: Heard) -> None:
    heard.checked(ONE, A)
    assert heard.decided() == [(ONE, A.name)]
    verdicts = heard.calls[0][2]
    assert [(v.problem, v.ok, v.worst_element) for v in verdicts] == [(ONE, True, (3, 4)), (ODD, True, (3, 4))]
    heard.checked(TWO, B)
    heard.check.finish()
    assert heard.decided() == [(ONE, A.name), (TWO, B.name)]
    assert heard.one.rows == {}


@pytest.mark.parametrize(("even", "odd"), [(False, True), (True, False), (False, False)])
def test_a_wrong_one_is_booked_and_the_next_best_taken(heard: Heard, even: bool, odd: bool) -> None:
    heard.checked(ONE, A, even=even, odd=odd)
    assert heard.calls == []
    row = heard.one.rows[A.name]
    size = "513 x 509 x 511" if even else "512 x 512 x 512"
    assert (row["status"], row["message"]) == ("wrong", f"at {size}: off by 7 in row 3")
    heard.checked(ONE, B)
    assert heard.decided() == [(ONE, B.name)]
    assert [v.name for v in heard.calls[0][2]] == [B.name, B.name]


def test_nothing_right(heard: Heard) -> None:
    for one in (A, B, C):
        heard.checked(ONE, one, odd=False)
    assert heard.decided() == [(ONE, None)]
    assert {row["status"] for row in heard.one.rows.values()} == {"wrong"}


def test_one_that_could_not_run_is_not_right(heard: Heard) -> None:
    heard.check.hear(ONE, Begin(0, A.name))
    heard.verdict(ONE, A, ok=True)
    heard.check.hear(ONE, Fail(0, A.name, Status.OUT_OF_RESOURCES, "shared memory"))
    heard.check.hear(ONE, End(0, A.name))
    assert heard.calls == []
    assert heard.one.rows[A.name] == {"status": "out_of_resources", "message": "shared memory"}


def test_one_that_killed_the_process(heard: Heard) -> None:
    heard.check.hear(TWO, Begin(0, B.name))
    heard.verdict(TWO, B, ok=True)
    heard.check.hear(TWO, Died(B.name, "signal SIGSEGV: "))
    assert heard.decided() == [(TWO, None)]
    assert heard.two.rows[B.name] == {"status": "crashed", "message": "signal SIGSEGV: "}


def test_after_the_winner_others_are_booked_and_change_nothing(heard: Heard) -> None:
    heard.checked(ONE, A)
    heard.checked(ONE, B, odd=False)
    heard.check.hear(ONE, Died(C.name, "gone"))
    assert heard.decided() == [(ONE, A.name)]
    assert {name: row["status"] for name, row in heard.one.rows.items()} == {B.name: "wrong", C.name: "crashed"}


def test_sizes_that_were_never_reached_are_finished_at_the_end(heard: Heard) -> None:
    heard.checked(ONE, A, even=False)
    heard.check.finish()
    heard.check.finish()
    assert heard.decided() == [(ONE, None), (TWO, None)]


def test_no_verdict_is_not_a_right_verdict(heard: Heard) -> None:
    heard.check.hear(TWO, Begin(0, B.name))
    heard.check.hear(TWO, End(0, B.name))
    assert heard.decided() == [(TWO, None)]


@pytest.mark.parametrize("all_of_them", [True, False])
def test_the_plan_keeps_the_order_and_names_each_script_once(all_of_them: bool) -> None:
    loop = config(family="gemm_persistent")
    order = [(state_of(ONE, A, loop), [loop.name, A.name]), (state_of(TWO, A), [A.name])]
    scripts = {(one.family, ONE.signature): Script(one.family, "0", "0") for one in (A, loop)}
    plan = verify_plan(order, scripts, 7, all_of_them=all_of_them)
    assert (plan.stage, plan.stop_at_first_right) == (VERIFY, not all_of_them)
    assert plan.scripts == ("gemm_persistent_0.py", "gemm_tile_0.py")
    assert [(work.problem, work.entries) for work in plan.work] == [
        (ONE, ((0, loop.name), (1, A.name))),
        (TWO, ((1, A.name),)),
    ]
    assert plan.method.seed == 7


def test_with_all_of_them_a_size_is_finished_when_all_are_checked(tmp_path: Path) -> None:
    heard = Heard(tmp_path, all_of_them=True)
    heard.checked(ONE, A)
    assert heard.decided() == []
    heard.checked(ONE, B, odd=False)
    heard.checked(ONE, C)
    assert heard.decided() == [(ONE, A.name)]
    assert heard.one.rows[B.name]["status"] == "wrong"


def test_a_check_that_ends_early_keeps_the_right_one_it_found(tmp_path: Path) -> None:
    heard = Heard(tmp_path, all_of_them=True)
    heard.checked(ONE, A)
    heard.check.finish()
    assert heard.decided() == [(ONE, A.name), (TWO, None)]


def test_one_that_gives_other_bits_is_unstable_and_never_chosen(heard: Heard) -> None:
    heard.check.hear(ONE, Begin(0, A.name))
    heard.verdict(ONE, A, ok=False, at=ODD)
    other_bits = Verdict(ONE, A.name, False, 0.0, 0.5, (3, 4), "C[3, 4] is 7 and in call 3 8", stable=False)
    heard.check.hear(ONE, Judged.of(0, other_bits))
    heard.check.hear(ONE, End(0, A.name))
    assert heard.calls == []
    assert heard.one.rows[A.name]["status"] == "unstable"
    assert heard.one.rows[A.name]["message"] == "at 512 x 512 x 512: C[3, 4] is 7 and in call 3 8"
    heard.checked(ONE, B)
    assert heard.decided() == [(ONE, B.name)]
    assert heard.store.checked(ONE) == {A.name, B.name} and heard.store.checked(TWO) == set()

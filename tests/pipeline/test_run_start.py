"""Which folder a command gets: a new one, that of a run that did not end, or that of the same question's answer."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from run_commands import ONE, Commands
from samples import ROOT
from tuning import environment

from gemm_tuner.core.errors import EnvironmentFault, UserError
from gemm_tuner.core.records import CompileResult, Status, Timing
from gemm_tuner.kernels import kernel_spec_file
from gemm_tuner.kernels.problem import KernelProblem
from gemm_tuner.launch.plan import FINALS, SCREEN, Method, Plan, Work
from gemm_tuner.pipeline import run_start
from gemm_tuner.store import run_folder
from gemm_tuner.store.sizes import SizeEntry
from gemm_tuner.store.store import Store
from gemm_tuner.system.run_lock import RunLock

pytestmark = pytest.mark.usefixtures("in_a_folder", "with_few_sources")


def test_the_same_command_goes_on_where_it_was(commands: Commands) -> None:
    with ExitStack() as stack:
        first, store = commands.begin(stack)
        store.record_outcome(ONE, "a")
    with ExitStack() as stack:
        second, store = commands.begin(stack)
        assert second == first and store.finished(ONE) == ("a", "")
        assert not run_start.is_finished(store)
        assert second.raw.is_dir() and second.scripts.is_dir()


def test_fresh_starts_over_and_leaves_the_other_alone(commands: Commands) -> None:
    first = commands.run()
    second = commands.run(fresh=True)
    assert second != first and first.is_dir()
    assert commands.run() == second  # the newest is gone on with


def test_runs_of_one_second_are_told_by_their_numbers(commands: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_folder, "time", SimpleNamespace(strftime=lambda form: "20260131-120000"))
    folders = [commands.run(fresh=True) for _ in range(12)]
    assert len(set(folders)) == 12
    assert commands.run() == folders[-1]
    monkeypatch.setattr(run_folder, "time", SimpleNamespace(strftime=lambda form: "20260131-120001"))
    later = commands.run(fresh=True)
    assert commands.run() == later


def test_a_run_that_ended_is_the_answer_to_the_same_question(commands: Commands) -> None:
    first = commands.run(ends=True)
    with ExitStack() as stack:
        folder, store = commands.begin(stack)
        assert folder.root == first and run_start.is_finished(store)


@pytest.mark.parametrize("change", [{"iters": 60}, {"seed": 7}, {"search": "full"}, {"compare": "all"}])
def test_a_run_that_ended_answers_no_other_question(commands: Commands, change: dict[str, Any]) -> None:
    first = commands.run(ends=True)
    assert commands.run(**change) != first


def test_a_run_that_ended_says_nothing_of_another_sample_that_decides(commands: Commands) -> None:
    """The problem is the same: its configurations are, and its row in the results file."""
    spec, (case, *_) = kernel_spec_file.read(ROOT / "examples" / "kernels" / "softmax.yaml")

    def entries(select: str) -> tuple[SizeEntry, ...]:
        return (SizeEntry(KernelProblem.of(replace(spec, select=select), case)),)

    first = commands.run(ends=True, entries=entries("median"))
    assert commands.run(entries=entries("last")) != first


def test_a_run_that_ended_goes_on_when_its_results_file_is_gone(commands: Commands) -> None:
    folder = commands.run(ends=True)
    (folder / "tuned.yaml").unlink()
    with ExitStack() as stack:
        again, store = commands.begin(stack)
        assert again.root == folder and not run_start.is_finished(store)


def test_stages_are_numbered_beyond_a_hundred(commands: Commands) -> None:
    with ExitStack() as stack:
        folder, _ = commands.begin(stack)
        names = [folder.stage("screen").name for _ in range(102)]
    assert (names[9], names[-1]) == ("09-screen", "101-screen") and len(set(names)) == 102


def test_other_sizes_are_another_run(commands: Commands, tmp_path: Path) -> None:
    first = commands.run()
    fewer = commands.asked.entries[:1]
    assert commands.run(entries=fewer) != first
    assert commands.run() == first


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"iters": 60}, "method was '5 screening calls, 30 rounds"),
        ({"heuristics": False}, "heuristics was True and is False"),
        ({"search": "quick"}, "search was 'guided' and is 'quick'"),
    ],
)
def test_an_unfinished_run_goes_on_in_no_other_way(commands: Commands, change: dict[str, Any], words: str) -> None:
    first = commands.run()
    with pytest.raises(UserError, match="cannot go on") as caught:
        commands.run(**change)
    message = caught.value.one_line()
    assert words in message and "--fresh" in message and str(first) in message
    assert commands.run() == first  # the refused command has let go of the lock and changed nothing


def test_another_driver_is_named(commands: Commands) -> None:
    commands.run()
    here = environment()
    with pytest.raises(UserError, match=r"driver was '570\.86' and is '580\.1'"):
        commands.run(of=replace(here, machine=replace(here.machine, driver="580.1")))


def test_a_run_under_way_is_not_disturbed(commands: Commands) -> None:
    with ExitStack() as stack:
        folder, store = commands.begin(stack)
        with pytest.raises(EnvironmentFault, match="under way"):
            commands.run()
        store.record_outcome(ONE, "a")  # it is still open
        lock = RunLock(folder.root)
        with pytest.raises(EnvironmentFault):
            lock.take()
    lock.take()
    lock.release()


def test_a_run_killed_before_it_had_begun_is_begun(commands: Commands) -> None:
    first = commands.run()
    store = Store(first / "run.sqlite")
    store._write("DELETE FROM facts WHERE name IN ('fingerprint', 'began_s')", [()])
    store.close()
    assert commands.run(iters=60) == first
    store = Store(first / "run.sqlite")
    assert store.fact("began_s")
    store.close()
    with pytest.raises(UserError):
        commands.run()


def test_a_check_or_a_benchmark_is_no_part_of_tuning(commands: Commands) -> None:
    """Its sizes may be the same; its finished run is no answer for who tunes."""
    tuned = commands.run()
    timed = commands.run(resumes=False, ends=True)
    assert timed != tuned and commands.run() == tuned
    assert commands.run(resumes=False) != timed


def test_more_time_is_another_question_once_the_run_has_ended(commands: Commands) -> None:
    first = commands.run(budget_s=60.0)
    assert commands.run(budget_s=90.0) == first  # not ended: it goes on
    assert commands.run(budget_s=90.0, ends=True) == first
    assert commands.run(budget_s=90.0) == first and commands.run(budget_s=30.0) == first
    longer = commands.run(budget_s=120.0, ends=True)
    assert longer != first
    unbounded = commands.run(ends=True)
    assert unbounded not in (first, longer)
    assert commands.run(budget_s=120.0) == unbounded


def test_what_ran_when_the_run_was_killed_is_noted_once(commands: Commands) -> None:
    with ExitStack() as stack:
        folder, _ = commands.begin(stack)
        where = folder.stage(SCREEN) / "start00"
        where.mkdir()
        Plan(SCREEN, ("script.py",), (Work(ONE, ((0, "a"), (0, "b"))),), Method()).write(where / "plan.json")
        journal = ['{"event": "begin", "work": 0, "name": "a"}', '{"event": "end", "work": 0, "name": "a"}']
        journal.append('{"event": "begin", "work": 0, "name": "b"}')
        (where / "journal.jsonl").write_text("\n".join(journal) + "\n")
    for _ in range(2):
        with ExitStack() as stack:
            _, store = commands.begin(stack)
            assert store.begun(ONE) == {"b": 1}


@pytest.mark.parametrize(("together", "times"), [(True, 2), (False, 4)])
def test_what_several_loaded_side_by_side_when_the_run_was_killed_is_noted_once(
    commands: Commands, together: bool, times: int
) -> None:
    """Else one kill would count as many, and the configuration not be run again. A process that had begun again after
    another kill counts twice."""
    with ExitStack() as stack:
        folder, _ = commands.begin(stack)
        for starts in (1, 2, 1):
            stage = folder.stage(FINALS)
            for start in range(starts):
                where = stage / f"start{start:02d}"
                where.mkdir()
                plan = Plan(FINALS, ("script.py",), (Work(ONE, ((0, "a"),)),), Method(), together=together)
                plan.write(where / "plan.json")
                (where / "journal.jsonl").write_text('{"event": "begin", "work": 0, "name": "a"}\n')
    with ExitStack() as stack:
        _, store = commands.begin(stack)
        assert store.begun(ONE) == {"a": times}


def compiled(store: Store) -> None:
    store.add_compiles({("file", "symbol", "special"): CompileResult("symbol", "digest", Status.OK)})


def timed(store: Store) -> None:
    store.add_timings([Timing(ONE, "a", Status.OK, (1.0,))], SCREEN)


def nothing(store: Store) -> None:
    store.set_fact("fingerprint", {})


@pytest.mark.parametrize(
    ("fault", "done", "stays"),
    [
        (UserError("no such family"), nothing, False),
        (UserError("the results file was replaced"), compiled, True),
        (UserError("the results file was replaced"), timed, True),  # by a recording, which compiles nothing
        (UserError("the results file was replaced"), lambda store: store.record_outcome(ONE, "a"), True),
        (EnvironmentFault("the disk is full"), nothing, True),
        (KeyboardInterrupt(), nothing, True),
    ],
)
def test_a_command_that_is_refused_leaves_no_run(
    commands: Commands, fault: BaseException, done: Callable[[Store], None], stays: bool
) -> None:
    with pytest.raises(type(fault)), ExitStack() as stack:
        folder, store = commands.begin(stack)
        done(store)
        raise fault
    assert folder.root.exists() == folder.scripts.exists() == stays


def test_a_command_that_is_refused_leaves_the_run_that_it_goes_on_with(commands: Commands) -> None:
    before = commands.run()
    with pytest.raises(UserError), ExitStack() as stack:
        assert commands.begin(stack)[0].root == before
        raise UserError("no such family")
    assert before.is_dir()

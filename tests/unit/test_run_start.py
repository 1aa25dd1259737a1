"""Which folder a command gets: a new one, that of a run that did not end, or that of the same question's answer."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from samples import config, problem
from tuning import setting, settings

from gemm_tuner import resume, run_folder, run_start
from gemm_tuner.errors import EnvironmentFault, UserError
from gemm_tuner.launcher.plan import SCREEN, Method, Plan, Work
from gemm_tuner.prepare import Setting
from gemm_tuner.records import GemmProblem
from gemm_tuner.run_folder import RunFolder
from gemm_tuner.run_identity import differences, fingerprint
from gemm_tuner.run_lock import RunLock
from gemm_tuner.settings import Settings
from gemm_tuner.store import Store

ONE, TWO = problem(512, 512, 512), problem(64, 64, 64)


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


class Commands:
    """Starts of the tuner in one folder; each ends before the next unless a test says otherwise."""

    def __init__(self, folder: Path) -> None:
        self.asked = settings(folder, ONE, TWO)

    def begin(
        self, stack: ExitStack, of: Setting | None = None, resumes: bool = True, **changes: Any
    ) -> tuple[RunFolder, Store]:
        return run_start.begin(replace(self.asked, **changes), of or setting(), "nsys 2025.3", stack, resumes=resumes)

    def run(self, *, ends: bool = False, of: Setting | None = None, resumes: bool = True, **changes: Any) -> Path:
        """The folder that a command has worked in. ends: it came to its end, and was not killed."""
        with ExitStack() as stack:
            folder, store = self.begin(stack, of, resumes, **changes)
            if ends:
                folder.results_path(None).touch()
                store.set_fact("state", resume.FINISHED)
            return folder.root


@pytest.fixture
def commands(tmp_path: Path) -> Commands:
    return Commands(tmp_path)


def test_the_same_command_goes_on_where_it_was(commands: Commands) -> None:
    with ExitStack() as stack:
        first, store = commands.begin(stack)
        store.settle(ONE, "a")
    with ExitStack() as stack:
        second, store = commands.begin(stack)
        assert second == first and store.settled(ONE) == ("a", "")
        assert not resume.is_finished(store)
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
        assert folder.root == first and resume.is_finished(store)


@pytest.mark.parametrize("change", [{"iters": 60}, {"seed": 7}, {"search": "full"}, {"compare": "all"}])
def test_a_run_that_ended_answers_no_other_question(commands: Commands, change: dict[str, Any]) -> None:
    first = commands.run(ends=True)
    assert commands.run(**change) != first


def test_a_run_that_ended_goes_on_when_its_results_file_is_gone(commands: Commands) -> None:
    folder = commands.run(ends=True)
    (folder / "tuned.yaml").unlink()
    with ExitStack() as stack:
        again, store = commands.begin(stack)
        assert again.root == folder and not resume.is_finished(store)


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
    here = setting()
    with pytest.raises(UserError, match=r"driver was '570\.86' and is '580\.1'"):
        commands.run(of=replace(here, machine=replace(here.machine, driver="580.1")))


def test_a_run_under_way_is_not_disturbed(commands: Commands) -> None:
    with ExitStack() as stack:
        folder, store = commands.begin(stack)
        with pytest.raises(EnvironmentFault, match="under way"):
            commands.run()
        store.settle(ONE, "a")  # it is still open
        lock = RunLock(folder.root)
        with pytest.raises(EnvironmentFault):
            lock.take()
    lock.take()
    lock.release()


def test_a_run_killed_before_it_had_begun_is_begun(commands: Commands) -> None:
    first = commands.run()
    store = Store(first / "run.sqlite")
    store._write("DELETE FROM facts WHERE name = 'fingerprint'", [()])
    store.close()
    assert commands.run(iters=60) == first
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


def changed(asked: Settings, **changes: Any) -> list[str]:
    before, now = (fingerprint(one, setting(), "nsys") for one in (asked, replace(asked, **changes)))
    return [line.split(" was ")[0] for line in differences(before, now)]


def test_what_makes_timings_another_kind(tmp_path: Path) -> None:
    asked = settings(tmp_path, ONE)
    rules = tmp_path / "rules"
    rules.mkdir()
    (rules / "validity.py").write_text("# mine\n")
    assert changed(asked) == []
    assert changed(asked, rules_dir=rules) == ["rules"]
    assert changed(asked, rotating_mib=512) == changed(asked, init_type="zeros") == ["method"]
    older = {ONE: config()}
    assert changed(asked, older=older) == ["older configurations"]
    assert changed(replace(asked, older=older), min_improvement_pct=0.5) == ["older configurations"]
    assert changed(asked, min_improvement_pct=0.5) == []  # nothing is to be beaten
    assert changed(asked, verbose=True, keep=True, jobs=4, compile_workers=3, budget_s=9.0) == []


def test_the_sizes_given_do_not_change_the_method(tmp_path: Path) -> None:
    sizes: tuple[GemmProblem, ...] = (ONE, TWO)
    one, other = (fingerprint(settings(tmp_path, *some), setting(), "nsys") for some in (sizes, sizes[:1]))
    assert differences(one, other) == []

"""GPUs and profiler starts: who times which size, what becomes of it when a GPU fails, and how starts are dealt."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest
from samples import problem
from tuning import StandInGpu, lost

from gemm_tuner.core.errors import CannotWrite, EnvironmentFault
from gemm_tuner.core.records import Problem, Status, Timing
from gemm_tuner.gemm.problem import GemmProblem
from gemm_tuner.launch.journal import Judged
from gemm_tuner.launch.plan import SCREEN, VERIFY, Method, Plan, Work
from gemm_tuner.measure.fleet import MOST_ENTRIES_A_START, Fleet, deal, starts_for
from gemm_tuner.measure.launcher_events import Heard, OnEvent, ignore
from gemm_tuner.measure.parse_run import Key, remaining
from gemm_tuner.measure.retry import OnFound, StageRun

SIZES = [problem(16, 16, k) for k in (64, 128, 256, 512)]
NAMES = ("a", "b", "c")


def work_of(*counts: int) -> list[Work]:
    """Sizes with so many configurations to time."""
    return [Work(GemmProblem(16, 16, m), ((0, "name"),) * count) for m, count in enumerate(counts, 1)]


@pytest.mark.parametrize(
    ("counts", "starts"),
    [
        ((), 1),
        ((0,), 1),
        ((1,), 1),
        ((MOST_ENTRIES_A_START,), 1),
        ((MOST_ENTRIES_A_START, 1), 2),
        ((3000,) * 20, 4),
        ((3000,) * 21, 5),
    ],
)
def test_no_start_holds_more_than_a_profiler_can_read(counts: tuple[int, ...], starts: int) -> None:
    share = work_of(*counts)
    assert starts_for(share) == starts
    assert all(sum(len(w.entries) for w in part) <= MOST_ENTRIES_A_START for part in deal(share, starts))


def test_a_size_stays_whole_however_large() -> None:
    share = work_of(2 * MOST_ENTRIES_A_START + 1)
    assert starts_for(share) == 3
    assert deal(share, 3) == [share]


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_dealing_loses_nothing(count: int) -> None:
    share = work_of(5, 4, 3, 2, 1)
    parts = deal(share, count)
    assert len(parts) == min(count, 5)
    assert sorted(w.problem.k for part in parts for w in part) == [1, 2, 3, 4, 5]
    assert deal([], count) == [[]]


def wanted(*sizes: GemmProblem) -> list[Work]:
    return [Work(size, tuple((0, name) for name in NAMES)) for size in sizes]


def one_start(share: list[Work]) -> list[tuple[Plan, Path]]:
    return [(Plan(SCREEN, ("script.py",), tuple(share), Method(timed_calls=2)), Path("/nowhere"))]


def start_a_size(share: list[Work]) -> list[tuple[Plan, Path]]:
    return [one_start([work])[0] for work in share]


def fleet_of(*gpus: StandInGpu) -> tuple[Fleet, list[str]]:
    said: list[str] = []
    fleet = Fleet(gpus, said.append)
    fleet.deal(dict.fromkeys(SIZES, 1.0))
    return fleet, said


def timed_by(gpu: StandInGpu) -> list[GemmProblem]:
    return [work.problem for plan in gpu.plans for work in plan.work]


def names_of(runs: list[StageRun]) -> set[Key]:
    return {key for run in runs for key in run.timings}


EVERYTHING = {(size, name) for size in SIZES for name in NAMES}


def test_the_dearest_sizes_are_dealt_first_and_each_to_the_gpu_with_the_least_to_do() -> None:
    fleet = Fleet([StandInGpu(), StandInGpu()], print)
    fleet.deal(dict(zip(SIZES, (1.0, 2.0, 4.0, 6.0), strict=True)))
    assert [fleet.home[size] for size in SIZES] == [0, 1, 1, 0]


def test_a_size_stays_on_its_gpu_and_new_ones_go_where_less_is_to_do() -> None:
    fleet, _ = fleet_of(StandInGpu(), StandInGpu())
    before = dict(fleet.home)
    new = problem(16, 16, 1024)
    fleet.deal({**{size: 1.0 if before[size] else 100.0 for size in SIZES}, new: 5.0})
    assert fleet.home == {**before, new: 1}


def test_all_gpus_time_their_share_at_once() -> None:
    """Each waits until the other has begun."""
    both = threading.Barrier(2, timeout=120)

    def wait_for_the_other(plan: Plan) -> None:
        both.wait()

    one, other = (StandInGpu(before=wait_for_the_other) for _ in range(2))
    fleet, _ = fleet_of(one, other)
    runs = fleet.time(wanted(*SIZES), one_start, ignore, ignore)
    assert names_of(runs) == EVERYTHING
    assert sorted(map(len, (timed_by(one), timed_by(other)))) == [2, 2]
    assert not set(timed_by(one)) & set(timed_by(other))
    assert {fleet.home[size] for size in timed_by(one)} == {0}


def test_a_gpu_without_a_size_is_not_started() -> None:
    one, other = StandInGpu(), StandInGpu()
    fleet, _ = fleet_of(one, other)
    fleet.time(wanted(SIZES[0]), one_start, ignore, ignore)
    assert len(one.plans) + len(other.plans) == 1


def test_the_sizes_of_a_gpu_that_fails_go_to_the_others() -> None:
    dead, alive = StandInGpu(before=lost), StandInGpu()
    fleet, said = fleet_of(dead, alive)
    runs = fleet.time(wanted(*SIZES), one_start, ignore, ignore)
    assert names_of(runs) == EVERYTHING
    assert set(timed_by(alive)) == set(SIZES) and fleet.alive() == [1]
    assert said == ["GPU 0 of the run is given up, its sizes go to the others: the GPU fell off the bus"]
    # It is not asked again.
    fleet.deal(dict.fromkeys(SIZES, 1.0))
    fleet.time(wanted(*SIZES), one_start, ignore, ignore)
    assert len(dead.plans) == 1


def test_what_a_gpu_had_found_before_it_failed_is_not_timed_again() -> None:
    def fail_second(plan: Plan) -> None:
        if len(dead.plans) == 2:
            lost(plan)

    dead, alive, heard = StandInGpu(before=fail_second), StandInGpu(), list[Key]()
    fleet, _ = fleet_of(dead, alive)

    def found(timings: dict[Key, Timing]) -> None:
        heard.extend(timings)

    fleet.time(wanted(*SIZES), start_a_size, ignore, found)
    first, second = timed_by(dead)
    assert first not in timed_by(alive) and second in timed_by(alive)
    assert sorted(heard, key=str) == sorted(EVERYTHING, key=str)  # each once


def test_without_a_gpu_left_the_run_fails() -> None:
    fleet, said = fleet_of(StandInGpu(before=lost), StandInGpu(before=lost))
    with pytest.raises(EnvironmentFault, match="fell off the bus"):
        fleet.time(wanted(*SIZES), one_start, ignore, ignore)
    assert len(said) == 1


def test_a_full_disk_is_no_fault_of_a_gpu() -> None:
    def no_space(plan: Plan) -> None:
        raise CannotWrite("No space left on device")

    fleet, said = fleet_of(StandInGpu(before=no_space), StandInGpu())
    with pytest.raises(CannotWrite):
        fleet.time(wanted(*SIZES), one_start, ignore, ignore)
    assert said == [] and fleet.alive() == [0, 1]


def test_another_error_ends_the_others_too() -> None:
    """The first GPU runs until it is cancelled: the second one's error must not wait for it."""
    ended = threading.Event()

    class Busy(StandInGpu):
        def cancel(self) -> None:
            super().cancel()
            ended.set()

    def wait_for_the_end(plan: Plan) -> None:
        assert ended.wait(120), "it was not cancelled"

    def bug(plan: Plan) -> None:
        raise ZeroDivisionError

    busy, broken = Busy(before=wait_for_the_end), StandInGpu(before=bug)
    fleet, said = fleet_of(busy, broken)
    with pytest.raises(ZeroDivisionError):
        fleet.time(wanted(*SIZES), one_start, ignore, ignore)
    assert busy.cancelled and broken.cancelled and said == []


def test_what_is_left_keeps_what_was_asked_of_it() -> None:
    one, other = wanted(*SIZES[:2])
    asked = Work(one.problem, one.entries, True, "b", 60, 3.5)
    left = remaining([asked, other], {(one.problem, "a"), *((other.problem, name) for name in NAMES)})
    assert left == [Work(one.problem, one.entries[1:], True, "b", 60, 3.5)]


@pytest.mark.parametrize("status", [Status.OK, Status.LAUNCH_ERROR, Status.CRASHED, Status.TIMEOUT])
def test_a_size_that_must_stay_whole_is_timed_anew_without_what_ended_a_process(status: Status) -> None:
    """The first GPU brings one configuration of its size and dies; else the other goes on behind it."""

    class Dying(StandInGpu):
        def timings(self, plan: Plan, folder: Path, on_event: OnEvent = ignore, on_found: OnFound = ignore) -> StageRun:
            size = plan.work[0].problem
            on_found({(size, "a"): Timing(size, "a", status)})
            raise EnvironmentFault("the GPU fell off the bus")

    ended_it = status in (Status.CRASHED, Status.TIMEOUT)
    for whole, expected in ((True, NAMES[1:] if ended_it else NAMES), (False, NAMES[1:])):
        alive = StandInGpu()
        fleet, _ = fleet_of(Dying(), alive)
        size = next(size for size in SIZES if fleet.home[size] == 0)
        fleet.time(wanted(size), one_start, ignore, ignore, whole)
        assert [tuple(name for _, name in work.entries) for plan in alive.plans for work in plan.work] == [expected]


def test_work_of_a_size_whose_gpu_died_before_is_dealt_to_another() -> None:
    """A size that was through when its GPU died, and is to be timed again."""
    dead, alive = StandInGpu(before=lost), StandInGpu()
    fleet, _ = fleet_of(dead, alive)
    size, through = (size for size in SIZES if fleet.home[size] == 0)
    fleet.time(wanted(size), one_start, ignore, ignore)
    assert fleet.home[through] == 0
    assert names_of(fleet.time(wanted(through), one_start, ignore, ignore)) == {(through, name) for name in NAMES}


def check_of(*sizes: GemmProblem, every: bool = False) -> Plan:
    return Plan(VERIFY, ("script.py",), tuple(wanted(*sizes)), Method(), stop_at_first_right=not every)


def checked_by(fleet: Fleet, plan: Plan) -> list[Key]:
    """The configurations of which a check heard, in order; two verdicts each."""
    found: list[Key] = []

    def hear(problem: Problem, event: Heard) -> None:
        if isinstance(event, Judged):
            found.append((problem, event.name))

    fleet.verdicts(plan, Path("/nowhere/07-verify"), hear)
    return found


def test_all_gpus_check_at_once() -> None:
    """Each waits until the other has heard of its first size."""
    both = threading.Barrier(2, timeout=120)

    class Waiting(StandInGpu):
        def verdicts(self, plan: Plan, folder: Path, on_event: OnEvent = ignore) -> None:
            folders.append(folder)
            both.wait()
            super().verdicts(plan, folder, on_event)

    folders: list[Path] = []
    one, other = Waiting(), Waiting()
    fleet, _ = fleet_of(one, other)
    heard = checked_by(fleet, check_of(*SIZES))
    assert sorted(heard, key=str) == sorted([(size, "a") for size in SIZES] * 2, key=str)
    assert {fleet.home[size] for size in timed_by(one)} == {0} and len(timed_by(one)) == len(timed_by(other)) == 2
    assert len(set(folders)) == 2 and {path.name.partition("-")[0] for path in folders} == {"07"}


@pytest.mark.parametrize(("every", "left"), [(False, ()), (True, ("b", "c"))])
def test_what_a_gpu_has_checked_before_it_fails_is_not_checked_again(every: bool, left: tuple[str, ...]) -> None:
    class Dying(StandInGpu):
        def verdicts(self, plan: Plan, folder: Path, on_event: OnEvent = ignore) -> None:
            first = replace(plan.work[0], entries=plan.work[0].entries[:1])
            super().verdicts(replace(plan, work=(first,)), folder, on_event)
            raise EnvironmentFault("the GPU fell off the bus")

    dying, alive = Dying(), StandInGpu()
    fleet, said = fleet_of(dying, alive)
    begun, other = (size for size in SIZES if fleet.home[size] == 0)
    checked_by(fleet, check_of(*SIZES, every=every))
    again = {work.problem: tuple(name for _, name in work.entries) for work in alive.plans[-1].work}
    assert again == {other: NAMES, **({begun: left} if left else {})} and len(said) == 1


def test_an_error_of_what_hears_of_checks_is_no_fault_of_a_gpu() -> None:
    def full(problem: Problem, event: Heard) -> None:
        raise EnvironmentFault("the results file cannot be written")

    fleet, said = fleet_of(StandInGpu(), StandInGpu())
    with pytest.raises(EnvironmentFault, match="the results file"):
        fleet.verdicts(check_of(*SIZES), Path("/nowhere/07-verify"), full)
    assert said == []

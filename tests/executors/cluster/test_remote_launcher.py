"""A launcher on another machine: what is said of a configuration at which machines die."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from samples import problem
from thread_workers import ThreadWorker

from gemm_tuner.core.errors import EnvironmentFault
from gemm_tuner.core.records import Status
from gemm_tuner.executors.cluster.gpu_station import Told
from gemm_tuner.executors.cluster.remote_launcher import RemoteLauncher
from gemm_tuner.launch.journal import Begin
from gemm_tuner.launch.plan import SCREEN, VERIFY, Method, Plan, Work
from gemm_tuner.measure.launcher_events import Died
from gemm_tuner.store.store import Store

SIZE = problem(64, 64, 64)


class Dying:
    """Begins the first configuration of a plan, and is gone."""

    def __init__(self) -> None:
        self.kill, self.told = lambda: None, False

    def begin(self, *of: Any) -> None: ...

    def news(self, job: str, wait_s: float) -> list[object]:
        if self.told:
            self.kill()
            return []
        self.told = True
        return [Told(SIZE, Begin(0, "deadly"))]


def launcher(store: Store, folder: Path, node: str) -> RemoteLauncher:
    station = Dying()
    worker = ThreadWorker(station, node, node)
    station.kill = worker.kill
    return RemoteLauncher(worker, False, store, folder, lambda plan, there: (), lambda: False)


@pytest.mark.parametrize("stage", [SCREEN, VERIFY])
def test_a_configuration_at_which_two_machines_die_has_crashed(tmp_path: Path, stage: str) -> None:
    store = Store(tmp_path / "run.sqlite")
    plan = Plan(stage, (), (Work(SIZE, ((0, "deadly"),)),), Method())
    crashed: list[str] = []

    def on_event(_: Any, event: Any) -> None:
        crashed.extend([event.name] if isinstance(event, Died) else [])

    def on_found(timings: Any) -> None:
        crashed.extend(one.name for one in timings.values() if one.status == Status.CRASHED)

    for node, so_far in (("a", []), ("b", ["deadly"])):
        one = launcher(store, tmp_path, node)
        with pytest.raises(EnvironmentFault, match="is gone"):
            if stage == VERIFY:
                one.verdicts(plan, tmp_path, on_event)
            else:
                one.timings(plan, tmp_path, on_event, on_found)
        assert crashed == so_far
    store.close()


class Silent:
    """Begins, and then answers nothing before it is killed."""

    def __init__(self) -> None:
        self.gone = threading.Event()

    def begin(self, *of: Any) -> None: ...

    def news(self, job: str, wait_s: float) -> list[object]:
        self.gone.wait()
        return []


@pytest.mark.parametrize("hold_s", [0.1, 1e9])
def test_a_machine_is_given_up_when_it_has_lost_its_leases(tmp_path: Path, hold_s: float) -> None:
    """By its silence, or by what another thread of this process knows of it."""
    store, station = Store(tmp_path / "run.sqlite"), Silent()
    store.leases.hold_s = hold_s
    worker = ThreadWorker(station, "a", "a")
    one = RemoteLauncher(worker, False, store, tmp_path, lambda plan, there: (), lambda: False)
    ended = threading.Event()

    def lose() -> None:
        while hold_s > 1 and not ended.is_set() and not store.leases.lose("a"):
            ended.wait(0.01)

    thread = threading.Thread(target=lose)
    thread.start()
    with pytest.raises(EnvironmentFault, match="no sign of life"):
        one.timings(Plan(SCREEN, (), (Work(SIZE, ((0, "name"),)),), Method()), tmp_path)
    ended.set()
    thread.join()
    assert not worker.alive and store.leases.counts() == {"open": 1}
    station.gone.set()
    store.close()

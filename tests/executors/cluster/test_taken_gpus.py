"""GPUs of a cluster that another job has: their stations never answer, and all are waited for together."""

from __future__ import annotations

import io
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console
from thread_workers import ThreadWorker

from gemm_tuner.executors.cluster import ray_cluster
from gemm_tuner.executors.cluster.nodes import Node, look_here
from gemm_tuner.executors.cluster.ray_cluster import ANSWER_LIMIT_S, RayCluster
from gemm_tuner.pipeline import cluster_check, cluster_work

HERE = look_here()
NODES = [Node(f"id{number}", f"10.0.0.{number}", cpus=16, gpus=8, versions=HERE) for number in range(3)]


class Clock:
    """Time passes only while something is waited for."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s

    def never(self, timeout: float | None = None) -> Any:
        assert timeout is not None
        self.now_s += timeout
        raise TimeoutError


class Taken:
    """A cluster whose stations never answer."""

    def __init__(self, clock: Clock) -> None:
        self.clock, self.stations = clock, 0

    def nodes(self) -> list[Node]:
        return NODES

    def station(self, kind: type, name: str, node: str, *of: Any, gpus: int) -> ThreadWorker:
        self.stations += 1
        answer: Future[Any] = Future()
        answer.result = self.clock.never  # type: ignore[method-assign]
        worker = ThreadWorker(None, name, node)
        worker.call = lambda *_: answer  # type: ignore[method-assign]
        return worker

    def close(self) -> None: ...


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    for module in (cluster_work, cluster_check, ray_cluster):
        monkeypatch.setattr(module, "time", clock)
    return clock


def test_a_run_waits_once_for_all(clock: Clock) -> None:
    cluster, said = Taken(clock), io.StringIO()
    assert cluster_work.find_gpus(cluster, NODES, HERE, Console(file=said, width=200)) == []  # type: ignore[arg-type]
    assert cluster.stations == 24 and clock.now_s <= ANSWER_LIMIT_S
    assert said.getvalue().count("another job has it") == 24


def test_a_look_at_the_cluster_waits_once_for_all(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Taken(clock)
    monkeypatch.setattr(ray_cluster, "connect", lambda *_, **__: cluster)
    found = cluster_check.look("ray", Console(file=io.StringIO()))
    assert cluster.stations == 24 and clock.now_s <= ANSWER_LIMIT_S
    assert [len(one.wrong) for one in found] == [8, 8, 8]


def test_machines_that_do_not_answer_are_waited_for_together(clock: Clock) -> None:
    class GetTimeoutError(Exception): ...

    def get(_: object, timeout: float) -> None:
        clock.now_s += timeout
        raise GetTimeoutError

    rows = [{"NodeID": name, "NodeManagerAddress": name, "Alive": True, "Resources": {}} for name in "abc"]
    errors = SimpleNamespace(
        GetTimeoutError=GetTimeoutError, TaskUnschedulableError=KeyError, NodeDiedError=KeyError, RayError=KeyError
    )
    private = SimpleNamespace(worker=SimpleNamespace())
    cluster = RayCluster(SimpleNamespace(nodes=lambda: rows, get=get, exceptions=errors, _private=private), "a:1")
    cluster._ask = lambda node: node  # type: ignore[method-assign]
    assert all("did not answer" in node.why_not for node in cluster.nodes())
    assert clock.now_s <= ANSWER_LIMIT_S

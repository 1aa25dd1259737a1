"""Which cluster a command connects to, and who can reach one that it starts."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from gemm_tuner.core.errors import EnvironmentFault
from gemm_tuner.executors.cluster import ray_cluster


def test_a_cluster_that_runs_here_and_refuses_is_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def init(address: str, **_: Any) -> None:
        asked.append(address)
        raise RuntimeError("Version mismatch: the cluster was started with Ray 2.49")

    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(init=init))
    with pytest.raises(EnvironmentFault, match="Version mismatch"):
        ray_cluster.connect("ray", 1)
    assert asked == ["auto"]


def test_a_cluster_that_is_started_listens_on_loopback_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray")
    monkeypatch.setenv("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "")  # restored afterwards
    cluster = ray_cluster.connect("ray", 1)
    try:
        if cluster.folder is None:
            pytest.skip("a cluster runs on this machine")
        here = psutil.Process()
        ours = {one.pid for one in (here, *here.children(recursive=True))}
        heard = [one for one in psutil.net_connections("tcp") if one.status == "LISTEN" and one.pid in ours]
        assert heard and {one.laddr.ip.removeprefix("::ffff:") for one in heard} == {"127.0.0.1"}
    finally:
        cluster.close()

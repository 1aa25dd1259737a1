"""Which cluster a command connects to, who can reach one that it starts, what is said of machines that are gone."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from samples import ROOT

from gemm_tuner.core.errors import EXIT_ENVIRONMENT, EnvironmentFault
from gemm_tuner.executors.cluster import admission, ray_cluster
from gemm_tuner.executors.cluster.gpu_station import REPLAY_VARIABLE
from gemm_tuner.executors.cluster.nodes import Node
from gemm_tuner.executors.cluster.ray_cluster import RayCluster, RayNotes
from gemm_tuner.executors.cluster.worker import WorkerLost


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """Ray's sockets are in it."""
    with tempfile.TemporaryDirectory(prefix="gt-ray-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def test_a_cluster_that_runs_here_and_refuses_is_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def init(address: str, **_: Any) -> None:
        asked.append(address)
        raise RuntimeError("Version mismatch: the cluster was started with Ray 2.49")

    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(init=init))
    with pytest.raises(EnvironmentFault, match="Version mismatch"):
        ray_cluster.connect("ray", 1)
    assert asked == ["auto"]


@pytest.mark.usefixtures("only_cluster")
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


def test_an_address_at_which_nothing_listens_is_one_line_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray itself would try it for a minute and more, and warn each second."""
    asked: list[str] = []
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(init=lambda address, **_: asked.append(address)))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # it does not listen
        port = taken.getsockname()[1]
        with pytest.raises(EnvironmentFault, match="nothing answers there") as fault:
            ray_cluster.connect(f"ray:127.0.0.1:{port}", 1)
    assert "ray status" in fault.value.one_line() and not asked
    with pytest.raises(EnvironmentFault, match="nothing answers there"):
        ray_cluster.connect("ray:127.0.0.1:99999", 1)


def test_what_is_no_cluster_is_told_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Ray itself would try it for two minutes, and write what it tries past everything that could be silenced."""
    pytest.importorskip("ray")
    monkeypatch.setattr(admission, "ASK_LIMIT_S", 2.0)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        with pytest.raises(EnvironmentFault, match="no Ray cluster"):
            ray_cluster.connect(f"ray:127.0.0.1:{silent.getsockname()[1]}", 1)
    assert capfd.readouterr() == ("", "")


RECORDING = ROOT / "tests" / "data" / "h200_nsys_recording" / "raw"
HEAD = """
import sys, ray
of = ray.init("local", num_cpus=2, num_gpus=1, include_dashboard=False, _temp_dir=sys.argv[1], configure_logging=False)
print(of.address_info["gcs_address"], flush=True)
sys.stdin.read()
"""


@contextmanager
def a_cluster(folder: Path, env: dict[str, str]) -> Iterator[str]:
    """The address of one with a GPU that plays back a recording."""
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen([sys.executable, "-c", HEAD, str(folder)], env=env, text=True, **pipes) as head:
        assert head.stdin and head.stdout
        yield head.stdout.readline().strip()
        head.stdin.close()


@pytest.mark.usefixtures("only_cluster")
@pytest.mark.grid  # Ray starts for 10 s
@pytest.mark.parametrize("asks", [True, False])
def test_a_cluster_works_for_who_has_its_token_whether_or_not_it_asks_for_one(
    asks: bool, tmp_path: Path, short_folder: Path
) -> None:
    pytest.importorskip("ray")
    mine = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    mine |= {"RAY_USAGE_STATS_ENABLED": "0", "PYTHONPATH": str(ROOT), REPLAY_VARIABLE: str(RECORDING)}
    homes = {name: {**mine, "HOME": str(tmp_path / name)} for name in ("head", "else")}
    for home in homes:
        (tmp_path / home / ".ray").mkdir(parents=True)
    (tmp_path / "head" / ".ray" / "auth_token").write_text(64 * "a")
    look = [sys.executable, str(ROOT / "tune_gemm.py"), "check", "--cluster"]
    with a_cluster(short_folder, {**homes["head"], "RAY_AUTH_MODE": "token" if asks else "disabled"}) as address:
        found = {
            name: subprocess.run([*look, f"ray:{address}"], env=env, capture_output=True, text=True)
            for name, env in homes.items()
        }
    for name, one in found.items():
        if name == "head" or not asks:
            assert "GPUs that time: 1" in one.stdout and one.stderr == ""
        else:
            (line,) = one.stderr.splitlines()
            assert one.returncode == EXIT_ENVIRONMENT and "token" in line


def test_what_ray_says_of_a_death_is_kept_apart_from_results(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    ray = pytest.importorskip("ray")
    monkeypatch.setattr(ray._private.worker, "print_to_stdstream", None)  # restored afterwards
    (notes := RayNotes()).listen(ray)
    notes.write(tmp_path / "ray_logs")
    assert not list(tmp_path.iterdir())
    ray._private.worker.print_to_stdstream({"lines": ["Raylet is terminated"], "pid": "raylet", "is_err": False}, False)
    notes.write(tmp_path / "ray_logs")
    assert capfd.readouterr() == ("", "")
    assert "Raylet is terminated" in (tmp_path / "ray_logs" / "driver.txt").read_text()


def unreachable(error: Exception) -> tuple[RayCluster, Node]:
    """A cluster of real Ray's errors, one of whose machines answers with this one, and what is known of that."""

    def get(*_: Any, **__: Any) -> None:
        raise error

    exceptions = pytest.importorskip("ray").exceptions
    private = SimpleNamespace(worker=SimpleNamespace())
    cluster = RayCluster(SimpleNamespace(get=get, exceptions=exceptions, _private=private), "10.0.0.1:6379")
    row = {"NodeID": "id", "NodeManagerAddress": "10.0.0.2", "Resources": {"CPU": 8.0}}
    return cluster, cluster._node(row, None, 0.0)


def test_a_machine_that_left_between_two_questions_is_named_in_plain_words() -> None:
    errors = pytest.importorskip("ray").exceptions
    cluster, node = unreachable(errors.TaskUnschedulableError("NodeAffinitySchedulingStrategy lease_id=05000fff"))
    assert node.versions is None and "left the cluster" in node.why_not and "lease_id" not in node.why_not
    assert "lease_id=05000fff" in cluster.notes.texts[0]
    assert "within" in unreachable(errors.GetTimeoutError("x"))[1].why_not


def test_nothing_is_asked_of_ray_once_the_connection_is_closed() -> None:
    """The command of several GPU models closes its own before it starts a run for each, and at its end. Ray would start
    a cluster to kill an actor in."""
    asked: list[str] = []
    actors = SimpleNamespace(options=lambda **_: SimpleNamespace(remote=lambda *_: "actor"))
    ray = SimpleNamespace(
        remote=lambda _: actors,
        kill=lambda _: asked.append("kill"),
        shutdown=lambda: asked.append("shutdown"),
        _private=SimpleNamespace(worker=SimpleNamespace()),
    )
    cluster = RayCluster(ray, "10.0.0.1:6379")
    cluster._on = lambda *_: None  # type: ignore[method-assign]
    cluster.station(object, "GPU 0", "id", gpus=1)
    cluster.close()
    cluster.close()
    assert asked == ["kill", "shutdown"]


def test_a_station_that_died_is_lost_and_rays_own_words_are_noted() -> None:
    errors, heard = pytest.importorskip("ray").exceptions, list[str]()
    ray = SimpleNamespace(exceptions=errors)
    worker = ray_cluster.RayWorker(ray, None, "10.0.0.2 node 0 GPU 0", "id", heard.append)
    lost = worker._named(errors.ActorUnavailableError("rpc_code: 14", None))
    assert isinstance(lost, WorkerLost) and "rpc_code" not in str(lost)
    assert "rpc_code: 14" in heard[0] and "node 0 GPU 0" in heard[0]
    worker.kill()
    assert isinstance(worker._named(errors.ActorDiedError()), WorkerLost) and len(heard) == 1

"""Ray as the carrier of a run's work: the only module that imports it. Ray owns nothing of a run: a station that dies
is not restarted, and a call that is lost is not repeated; the lease table decides what is done again."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gemm_tuner.core.errors import EnvironmentFault, UserError
from gemm_tuner.executors.cluster.admission import FLAG, IS_IT_RUNNING, be_let_in
from gemm_tuner.executors.cluster.gpu_station import GpuStation
from gemm_tuner.executors.cluster.nodes import Node, Versions, counted
from gemm_tuner.executors.cluster.worker import WorkerLost
from gemm_tuner.system.installation import import_path

LOOPBACK = "127.0.0.1"
LOGS = "ray_logs"
# For a task that asks a machine what it is; a station that starts may have to wait for a process of Ray.
ANSWER_LIMIT_S = 60.0
CALLS_AT_ONCE = 32
MOST_NOTES = 1000


def load_ray() -> Any:
    """Raises EnvironmentFault where Ray is not installed."""
    try:
        import ray
    except ImportError as error:
        hint = "pip install '.[ray]' in a clone; without --cluster nothing needs it"
        raise EnvironmentFault("Ray is not installed", where=FLAG, hint=hint) from error
    return ray


@dataclass
class RayNotes:
    """What Ray says of processes and machines that died. It would print it, with pages of state, between the results;
    the tuner says in a line of its own what such a death costs."""

    texts: deque[str] = field(default_factory=lambda: deque(maxlen=MOST_NOTES))

    def listen(self, ray: Any) -> None:
        """Hears from now on what Ray would print on the driver's standard output."""

        def heard(data: dict[str, Any], *_: Any, **__: Any) -> None:
            self.texts.extend(data["lines"])

        ray._private.worker.print_to_stdstream = heard

    def write(self, folder: Path) -> None:
        if self.texts:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "driver.txt").write_text("".join(f"{text}\n" for text in self.texts), "utf-8")


@dataclass
class RayWorker:
    """A station in an actor. note: hears how Ray says that it is gone, unless it was killed."""

    ray: Any
    actor: Any
    name: str
    node: str
    note: Callable[[str], None] = lambda _: None
    _killed: bool = False

    def call(self, method: str, *arguments: Any) -> Future[Any]:
        answer: Future[Any] = Future()

        def done(future: Future[Any]) -> None:
            error = future.exception()
            if error is None:
                answer.set_result(future.result())
            else:
                answer.set_exception(self._named(error))

        try:
            getattr(self.actor, method).remote(*arguments).future().add_done_callback(done)
        except self.ray.exceptions.RayError as error:
            answer.set_exception(self._named(error))
        return answer

    def _named(self, error: BaseException) -> BaseException:
        """What the station raised, or WorkerLost."""
        errors = self.ray.exceptions
        if isinstance(error, errors.RayTaskError):
            return error.cause if isinstance(error.cause, BaseException) else error
        if isinstance(error, errors.RayError):
            if not self._killed:
                self.note(f"{self.name}: {error}")
            return WorkerLost()
        return error

    def kill(self) -> None:
        self._killed = True
        with suppress(Exception):  # one that is dead already
            self.ray.kill(self.actor)


@dataclass
class RayCluster:
    """A connection to a cluster. folder: Ray's own, of one that this process has started and ends. logs: where its logs
    go at the end, and the notes."""

    ray: Any
    address: str
    folder: Path | None = None
    logs: Path | None = None
    notes: RayNotes = field(default_factory=RayNotes)
    _actors: list[RayWorker] = field(default_factory=list)
    _closed: bool = False

    def __post_init__(self) -> None:
        self.notes.listen(self.ray)

    def nodes(self) -> list[Node]:
        """The machines that are alive, with what they answer about themselves."""
        rows = sorted((row for row in self.ray.nodes() if row["Alive"]), key=lambda row: row["NodeManagerAddress"])
        asked = [(row, self._ask(row["NodeID"])) for row in rows]
        until_s = time.monotonic() + ANSWER_LIMIT_S
        return [self._node(row, answer, until_s) for row, answer in asked]

    def _on(self, node: str, soft: bool = False) -> Any:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        return NodeAffinitySchedulingStrategy(node_id=node, soft=soft)

    def _ask(self, node: str) -> Any:
        def look() -> tuple[Versions | None, str]:
            try:
                from gemm_tuner.executors.cluster.nodes import look_here

                return look_here(), ""
            except Exception as error:
                return None, f"the tuner cannot be imported there: {error}"

        of = {"num_cpus": 0, "max_retries": 0, "scheduling_strategy": self._on(node)}
        return self.ray.remote(look).options(**of).remote()

    def _node(self, row: dict[str, Any], answer: Any, until_s: float) -> Node:
        """until_s: when an answer comes too late, of time.monotonic()."""
        errors = self.ray.exceptions
        try:
            versions, why_not = self.ray.get(answer, timeout=max(0.0, until_s - time.monotonic()))
        except errors.GetTimeoutError:
            versions, why_not = None, f"it did not answer within {ANSWER_LIMIT_S:g} s"
        except (errors.TaskUnschedulableError, errors.NodeDiedError) as error:
            self.notes.texts.append(str(error))
            versions, why_not = None, "it has left the cluster"
        except errors.RayError as error:
            versions, why_not = None, " ".join(str(error).split())[:200]
        has = row["Resources"]
        of = int(has.get("CPU", 0)), int(has.get("GPU", 0)), versions, why_not
        return Node(row["NodeID"], row["NodeManagerAddress"], *of)

    def station(self, kind: type, name: str, node: str, *arguments: Any, cpus: int = 0, gpus: int = 0) -> RayWorker:
        """A station of this class on a machine, which Ray starts when that has so much free."""
        of = {"num_cpus": cpus, "num_gpus": gpus, "max_restarts": 0, "max_task_retries": 0}
        actor = self.ray.remote(kind).options(**of, max_concurrency=CALLS_AT_ONCE, scheduling_strategy=self._on(node))
        self._actors.append(RayWorker(self.ray, actor.remote(*arguments), name, node, self.notes.texts.append))
        return self._actors[-1]

    def keep_logs(self, run: Path) -> None:
        """The logs of a cluster that was started for this run go into its folder."""
        self.logs = run / LOGS

    def close(self) -> None:
        """Ends the stations, and a cluster that was started for this run. May be called again, and does nothing then:
        Ray would start a cluster to kill an actor in."""
        if self._closed:
            return
        self._closed = True
        for worker in self._actors:
            worker.kill()
        self.ray.shutdown()
        if self.logs is not None:
            self.notes.write(self.logs)
        if self.folder is not None:
            for found in self.folder.glob("session_2*/logs") if self.logs else ():
                with suppress(OSError, shutil.Error):
                    shutil.copytree(found, self.logs or found, dirs_exist_ok=True)
            shutil.rmtree(self.folder, ignore_errors=True)


class GpuActor(GpuStation):
    """A station on the GPU that Ray gave it."""

    def __init__(self, recording: str) -> None:
        super().__init__([str(gpu) for gpu in load_ray().get_gpu_ids()], recording)


def address_of(text: str) -> str:
    """From ``ray`` or ``ray:ADDRESS``; "" for the first. Raises UserError."""
    name, _, address = text.partition(":")
    if name != "ray":
        raise UserError(f"{text!r} is no cluster", where=FLAG, accepted="ray, or ray:ADDRESS such as ray:10.0.0.1:6379")
    return address


def connect(text: str, cpus: int) -> RayCluster:
    """Connects to the cluster at an address, to the one that runs on this machine, or starts one that only this machine
    can reach.

    Raises EnvironmentFault without Ray and when nothing answers, UserError for text that names no cluster.
    """
    address = address_of(text)
    be_let_in(address, text)
    ray = load_ray()
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    quiet = {"log_to_driver": False, "logging_level": logging.ERROR, "configure_logging": False}
    try:
        ray.init(address=address or "auto", **quiet)
        return RayCluster(ray, address or "auto")
    except (ConnectionError, ValueError, RuntimeError) as error:
        if address or not isinstance(error, ConnectionError):  # one runs here, and does not let this process in
            what = f"no Ray cluster answers: {' '.join(str(error).split())[:200]}"
            raise EnvironmentFault(what, where=f"{FLAG} {text}", hint=IS_IT_RUNNING) from error
    listen_here_only(ray)
    folder = Path(tempfile.mkdtemp(prefix="gt-ray-"))  # short: Ray's sockets are in it
    os.environ["PYTHONPATH"] = import_path()
    ray.init(
        address="local", num_cpus=cpus, include_dashboard=False, _node_ip_address=LOOPBACK, _temp_dir=str(folder),
        **quiet,
    )  # fmt: skip
    return RayCluster(ray, "local", folder=folder)


def listen_here_only(ray: Any) -> None:
    """For the cluster that this process is about to start. Ray replaces a loopback address of a node by one that other
    machines reach, and then listens on all interfaces, unless it takes this machine for one of a system without
    clusters (macOS, Windows)."""
    os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # for the processes that Ray starts
    ray._private.ray_constants.ENABLE_RAY_CLUSTER = False


def listed(nodes: Sequence[Node]) -> str:
    """For a line to a person."""
    cpus, gpus = sum(node.cpus for node in nodes), sum(node.gpus for node in nodes)
    return f"{counted(len(nodes), 'machine')}, {counted(cpus, 'core')}, {counted(gpus, 'GPU')}"

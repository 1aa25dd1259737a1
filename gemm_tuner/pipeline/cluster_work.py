"""What a run needs of a cluster: which machines can work for it, and what they are told."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, TimeoutError
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from gemm_tuner.core.errors import EnvironmentFault
from gemm_tuner.executors.cluster import ray_cluster
from gemm_tuner.executors.cluster.cluster_executor import ClusterExecutor, Stations
from gemm_tuner.executors.cluster.compile_station import CompileStation
from gemm_tuner.executors.cluster.gpu_station import Seen
from gemm_tuner.executors.cluster.nodes import Node, Versions, counted, faults, lacks
from gemm_tuner.executors.cluster.ray_cluster import ANSWER_LIMIT_S, GpuActor, RayCluster
from gemm_tuner.executors.cluster.setup import Setup
from gemm_tuner.executors.cluster.worker import Worker, WorkerLost
from gemm_tuner.executors.local import LocalExecutor
from gemm_tuner.languages.together import names_of
from gemm_tuner.measure.device import Machine, backend_of
from gemm_tuner.pipeline.run_options import RunOptions
from gemm_tuner.store.store import Store
from gemm_tuner.system import progress
from gemm_tuner.system.terminal_table import print_line


@dataclass(frozen=True)
class FoundGpu:
    """A station and what it says of its GPU. recording: the folder of one that answers in its place. host: the address
    of its machine. profilers: versions of those there, by their names."""

    station: Worker
    machine: Machine
    recording: str = ""
    host: str = ""
    profilers: Mapping[str, str] = field(default_factory=dict)

    @property
    def backend(self) -> str:
        return backend_of(self.machine.gpu(0))

    @property
    def model(self) -> str:
        return str(self.machine.gpu(0)["name"])

    @property
    def row(self) -> dict[str, Any]:
        """The GPU's properties. AMD's have no UUID: a PCI address then names one only together with its machine."""
        row = self.machine.gpu(0)
        return row if row.get("uuid") else {**row, "pci": f"{self.host} {row.get('pci') or self.station.name}"}

    @property
    def kind(self) -> str:
        """What GPUs must have in common for times to be comparable."""
        row = self.machine.gpu(0)
        return f"{row['arch']}, {row['num_sms']} SMs, driver {self.machine.driver}"


@dataclass(frozen=True)
class OnCluster:
    """machine: the GPUs of the run, as if they were one machine's. stations: in the same order, and what compiles.
    on_folder: hears the run's folder."""

    machine: Machine
    stations: Stations
    on_folder: Callable[[Path], None] = lambda _: None


@contextmanager
def connected(options: RunOptions, console: Console) -> Iterator[RayCluster]:
    """Raises EnvironmentFault without Ray and when no cluster answers."""
    with progress.waiting("connect to Ray", console):
        cluster = ray_cluster.connect(options.cluster, options.compile_workers)
    try:
        yield cluster
    finally:
        cluster.close()


def machines(cluster: RayCluster, console: Console) -> list[Node]:
    """Those that are alive now; what joins the cluster later is not used."""
    with progress.waiting("look at machines", console):
        return cluster.nodes()


def fit_nodes(nodes: Iterable[Node], here: Versions, console: Console) -> list[Node]:
    """The machines that can work for a run; a line for each that cannot. here: what they must have. Raises
    EnvironmentFault for none, and for a language that none compiles."""
    fit = []
    for node in nodes:
        why = faults(node, here, times=False)
        if why:
            print_line(console, f"{node.address} is given no work: {'; '.join(why)}")
        else:
            fit.append(node)
    if not fit:
        raise EnvironmentFault("no machine of the cluster can work for this run", where="--cluster")
    compile_ = [node for node in fit if node.cpus > node.gpus]
    for language in set.intersection(*({*lacks(node, here)} for node in compile_)) if compile_ else ():
        what = f"no machine of the cluster compiles {language}: {lacks(compile_[0], here)[language]}"
        raise EnvironmentFault(what, where="--cluster", hint="install it there, or choose other --families")
    return fit


def find_gpus(
    cluster: RayCluster, nodes: Iterable[Node], here: Versions, console: Console, recording: str = ""
) -> list[FoundGpu]:
    """Starts a station for each GPU. A GPU that cannot be had is named in a line and left out. here: what its machine
    must have. recording: that every GPU plays back."""
    started = []
    for number, node in enumerate(nodes):
        why = faults(node, here, times=True) if node.gpus else []
        if why:
            print_line(console, f"{node.address} times nothing: {'; '.join(why)}")
        for gpu in range(0 if why else node.gpus):
            name = f"{node.address} node {number} GPU {gpu}"
            station = cluster.station(GpuActor, name, node.id, recording, gpus=1)
            started.append((station, node.address, station.call("look")))
    with progress.waiting("look at GPUs", console):
        return list(_answers(started, console))


def _answers(started: Iterable[tuple[Worker, str, Future[Any]]], console: Console) -> Iterator[FoundGpu]:
    """What stations say of their GPUs within ANSWER_LIMIT_S; a line for one that is killed, because its GPU cannot be
    had."""
    until = time.monotonic() + ANSWER_LIMIT_S
    for station, host, answer in started:
        try:
            seen: Seen = answer.result(max(0.0, until - time.monotonic()))
            yield FoundGpu(station, seen.machine, seen.recording, host, seen.profilers)
        except (EnvironmentFault, WorkerLost, TimeoutError) as error:
            station.kill()
            why_not = "another job has it" if isinstance(error, TimeoutError) else str(error)
            print_line(console, f"{station.name} is left out: {why_not}")


def require_gpus(nodes: Iterable[Node], arch: str, wanted: str) -> None:
    """Of a run for which no GPU could be had. nodes: all machines. arch: of --arch, "" without it: times for one that
    is named may be predicted. wanted: the machines of the GPU model that the run is for; "" for a run of all.

    Raises EnvironmentFault where there are GPUs, or must be: predicted rows are then not what was asked for.
    """
    if wanted:
        raise EnvironmentFault("none of the machines with this GPU model has one to time on now", where="--cluster")
    count = sum(node.gpus for node in nodes)
    if count and not arch:
        what = f"it has {counted(count, 'GPU')}, of which none can be used"
        raise EnvironmentFault(what, where="--cluster", hint="with --arch ARCH it compiles, and times are predicted")


def find_farm(
    cluster: RayCluster, nodes: Iterable[Node], here: Versions, share: int = 1
) -> list[tuple[Worker, int, frozenset[str]]]:
    """A station for the cores of each machine; a core for each GPU stays free for its launchers. With the languages
    that it lacks of those that there are ``here``. share: how many runs divide the cores among them."""
    found: list[tuple[Worker, int, frozenset[str]]] = []
    for number, node in enumerate(nodes):
        cores = (node.cpus - node.gpus) // share
        if cores > 0:
            name = f"{node.address} node {number} cores"
            station = cluster.station(CompileStation, name, node.id, cpus=cores)
            found.append((station, cores, frozenset(lacks(node, here))))
    return found


def alike(gpus: Sequence[FoundGpu], console: Console) -> list[FoundGpu]:
    """The GPUs of a model that most have the like of; a line for each other one, which is left out."""
    return like_most(gpus, lambda gpu: gpu.kind, console)


def like_most(gpus: Sequence[FoundGpu], kind_of: Callable[[FoundGpu], str], console: Console) -> list[FoundGpu]:
    """The GPUs of the kind that is most frequent; a line for each other one, which is left out."""
    kinds = Counter(map(kind_of, gpus))
    found = []
    for gpu in gpus:
        if kind_of(gpu) == max(kinds, key=lambda kind: (kinds[kind], kind)):
            found.append(gpu)
        else:
            gpu.station.kill()
            print_line(console, f"{gpu.station.name} is left out: it has {kind_of(gpu)}, unlike most {gpu.model}")
    return found


def machine_of(gpus: Iterable[FoundGpu]) -> Machine:
    """All GPUs as those of one machine, numbered anew."""
    gpus = list(gpus)
    first = gpus[0].machine
    rows = [{**one.row, "id": number} for number, one in enumerate(gpus)]
    return Machine(tuple(rows), first.versions, first.driver)


def executor(here: LocalExecutor, stations: Stations, store: Store, options: RunOptions) -> ClusterExecutor:
    """What works for the run in place of this machine."""
    by = here.profilers
    setup = Setup(
        languages=names_of(here.language),
        target=here.target,
        kind=here.kind,
        cache_name=options.cache_name,
        cache_limit_bytes=options.cache_limit_bytes,
        compile_limit_s=here.compile_limit_s,
        launch_limit_s=here.launch_limit_s,
        finals=by.finals.name if by else "",
        screening=by.screening.name if by and by.screening else "",
        wait_s=options.gpu_wait_s,
        recording=str(Path(here.recording.folder).resolve()) if here.recording else "",
        variables=tuple(here.language.code_variables(os.environ).items()),
    )
    return ClusterExecutor(here, stations, store, setup)

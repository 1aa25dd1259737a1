"""A run's work on a cluster: kernels are compiled on all machines, plans run on the GPUs that it was given."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from gemm_tuner.compile.compile_pool import Answer
from gemm_tuner.compile.task_queue import TaskQueue, key_of
from gemm_tuner.core.language import Artifact, CompileTask
from gemm_tuner.core.records import Status
from gemm_tuner.executors.cluster.farm import CompileNode, Farm
from gemm_tuner.executors.cluster.kernel_index import KernelIndex
from gemm_tuner.executors.cluster.remote_launcher import RemoteLauncher
from gemm_tuner.executors.cluster.setup import Setup
from gemm_tuner.executors.cluster.worker import Worker
from gemm_tuner.executors.executor import Executor
from gemm_tuner.executors.local import LocalExecutor
from gemm_tuner.launch.plan import Plan
from gemm_tuner.measure.launcher import HostChecker, Launcher
from gemm_tuner.profilers import Profiler
from gemm_tuner.store.store import Store


@dataclass(frozen=True)
class Stations:
    """What a run was given of a cluster: a station for each of its GPUs, with the GPU's lock; machines that compile,
    with their number of workers and the languages that they lack; and the versions of the profilers that all machines
    with its GPUs have."""

    gpus: tuple[tuple[Worker, str], ...]
    farm: tuple[tuple[Worker, int, frozenset[str]], ...]
    profilers: Mapping[str, str] = field(default_factory=dict)

    def version_of(self, profiler: Profiler) -> str | None:
        return self.profilers.get(profiler.name)


@dataclass
class IndexedFarm(Farm):
    """Notes where the kernels are that it compiles."""

    index: KernelIndex = field(default_factory=KernelIndex)

    def run(self, tasks: TaskQueue) -> Iterator[Answer]:
        for task, result in super().run(tasks):
            if result.status == Status.OK:
                self.index.made[key_of(task)] = result.entries
            yield task, result


@dataclass
class ClusterExecutor(Executor):
    """here: this machine, which does what no machine of the cluster can do."""

    here: LocalExecutor
    stations: Stations
    store: Store
    setup: Setup
    index: KernelIndex = field(default_factory=KernelIndex)

    def __post_init__(self) -> None:
        self.index.made.update({key: one.entries for key, one in self.store.compiles().items() if one.entries})
        self.store.leases.begin_again()

    def wants(self, name: str, task: CompileTask) -> None:
        self.index.note(name, task)

    def compiler(self) -> Farm:
        folder, nodes = self.here.folder, []
        for worker, workers, lacks in self.stations.farm:
            ready = worker.call("open", replace(self.setup, workers=workers))
            nodes.append(CompileNode(worker, workers, ready, lacks))
        here, leases, language = self.here.compiler(), self.store.leases, self.here.language
        of = language, folder.cache, folder.scripts, self.here.say
        return IndexedFarm(nodes, here, leases, *of, self.index)

    def launchers(self) -> Sequence[Launcher]:
        """Opens the stations all at once. Raises what one of them raised."""
        opened = [
            (one, one.call("open", replace(self.setup, locks=(lock,) if lock else ())))
            for one, lock in self.stations.gpus
        ]
        return [self._launcher(worker, answer.result()) for worker, answer in opened]

    def _launcher(self, worker: Worker, overlaps: bool) -> RemoteLauncher:
        here = self.here
        of = here.folder.scripts, self._kernels, here.wind_down, here.say
        return RemoteLauncher(worker, overlaps, self.store, *of)

    def checker(self) -> HostChecker:
        return self.here.checker()

    def _kernels(self, plan: Plan, there: set[str]) -> tuple[Artifact, ...]:
        """What a machine lacks of a plan's kernels. One that the cache has lost is compiled there once more."""
        found = []
        for entry in dict.fromkeys(self.index.entries(plan)):
            if entry not in there:
                with suppress(ValueError, OSError):
                    found.append(self.here.language.pack(self.here.folder.cache, entry))
        return tuple(found)

"""Which machines of a cluster a run gives work, and when it does not begin for lack of them."""

from __future__ import annotations

import io
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from cluster_stand_in import ClusterStandIn
from rich.console import Console
from samples import gpu
from tuning import run_options

from gemm_tuner.core.errors import EXIT_ENVIRONMENT, EnvironmentFault
from gemm_tuner.executors.cluster import ray_cluster
from gemm_tuner.executors.cluster.gpu_station import Seen
from gemm_tuner.executors.cluster.nodes import Node, gpu_files, look_here
from gemm_tuner.gemm.problem import GemmProblem
from gemm_tuner.measure.device import Machine
from gemm_tuner.pipeline import cluster_run, cluster_work
from gemm_tuner.pipeline.cluster_work import OnCluster
from gemm_tuner.pipeline.run_options import RunOptions
from gemm_tuner.store.results import write_rows

HERE = look_here()
CORES = Node("cores", "10.0.0.1", cpus=8, gpus=0, versions=HERE)
GPU = Node("gpu", "10.0.0.2", cpus=8, gpus=1, versions=HERE)
OTHER = replace(GPU, id="other", address="10.0.0.3")
SEEN = Seen(Machine((gpu(0),), {"triton": "3"}, "570"), "", {"proton": "3"})
GONE = EnvironmentFault("torch sees no GPU there")


@pytest.fixture
def said() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def console(said: io.StringIO) -> Console:
    return Console(file=said, width=200)


@dataclass
class Command:
    """The command's function, up to where its run begins. began: with these options, and what it was given."""

    folder: Path
    monkeypatch: pytest.MonkeyPatch
    console: Console
    began: list[tuple[RunOptions, OnCluster]] = field(default_factory=list)

    def __call__(self, cluster: ClusterStandIn, *, wanted: str = "", **changes: Any) -> list[str]:
        """The machines whose GPUs the run is given."""

        def begins(options: RunOptions, console: Console, out: Console, on_cluster: OnCluster) -> int:
            self.began.append((options, on_cluster))
            return 0

        self.monkeypatch.setattr(ray_cluster, "connect", lambda *_, **__: cluster)
        self.monkeypatch.setattr(cluster_run.run, "tune", begins)
        self.monkeypatch.setenv(cluster_run.MODEL, wanted)
        asked = run_options(self.folder, GemmProblem(64, 64, 64), cluster="ray", **changes)
        assert cluster_run.tune(asked, self.console, self.console) == 0
        return [worker.node for worker, _ in self.began[-1][1].stations.gpus]


@pytest.fixture
def tuned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, console: Console) -> Command:
    return Command(tmp_path, monkeypatch, console)


def test_gpus_that_cannot_be_used_are_not_replaced_by_predictions(tuned: Command, said: io.StringIO) -> None:
    with pytest.raises(EnvironmentFault, match="1 GPU, of which none can be used") as fault:
        tuned(ClusterStandIn([CORES, GPU], {"gpu": GONE}))
    assert fault.value.exit_status == EXIT_ENVIRONMENT
    assert "torch sees no GPU there" in said.getvalue()


def test_a_gpu_of_a_machine_that_cannot_work_counts_too(tuned: Command) -> None:
    unfit = replace(GPU, versions=replace(HERE, triton="0.0"))
    with pytest.raises(EnvironmentFault, match="none can be used"):
        tuned(ClusterStandIn([CORES, unfit], {"gpu": SEEN}))


def test_a_cluster_without_a_gpu_and_an_architecture_that_is_named_are_predicted(tuned: Command) -> None:
    assert tuned(ClusterStandIn([CORES])) == []
    assert tuned(ClusterStandIn([CORES, GPU], {"gpu": GONE}), arch="sm_100") == []


@pytest.mark.parametrize("arch", ["", "sm_90"])
def test_the_run_of_a_model_whose_machines_are_gone_predicts_nothing(tuned: Command, arch: str) -> None:
    for there in ([CORES], [CORES, GPU]):
        with pytest.raises(EnvironmentFault, match="GPU model"):
            tuned(ClusterStandIn(there, {"gpu": SEEN}), wanted="old,gone", arch=arch)


def test_the_run_of_the_only_model_goes_on_with_the_file_of_that_model(
    tuned: Command, tmp_path: Path, said: io.StringIO
) -> None:
    (word,) = gpu_files([gpu(0)["name"]]).values()
    begun = tmp_path / f"tuned.{word}.yaml"
    for path in (begun, tmp_path / f"tuned.own.{word}.yaml"):
        write_rows(path, {"date": "2026-01-01T00:00:00"}, [], [(GemmProblem(64, 64, 64), "not reached")])
    assert tuned(ClusterStandIn([GPU], {"gpu": SEEN}), results_file=tmp_path / "tuned.yaml") == ["gpu"]
    assert tuned.began[-1][0].results_file == begun and str(begun) in said.getvalue()
    own = tmp_path / "tuned.own.yaml"
    assert tuned(ClusterStandIn([GPU], {"gpu": SEEN}), wanted="gpu", results_file=own) == ["gpu"]
    assert tuned.began[-1][0].results_file == own


def test_the_run_of_a_model_looks_at_its_own_machines_alone(tuned: Command) -> None:
    cluster = ClusterStandIn([CORES, GPU, OTHER], {"gpu": SEEN, "other": SEEN})
    assert tuned(cluster, wanted="other") == ["other"]
    assert cluster.asked == ["other"] and set(cluster.cores) == {"cores", "gpu", "other"}


def test_a_run_is_given_gpus_of_machines_with_its_profiler_and_knows_the_versions(tuned: Command) -> None:
    with_nsys = replace(SEEN, profilers={"nsys": "2025.5", "proton": "3"})
    cluster = ClusterStandIn([GPU, OTHER], {"gpu": SEEN, "other": with_nsys})
    assert tuned(cluster, profiler="nsys") == ["other"]
    assert tuned.began[-1][1].stations.profilers == {"nsys": "2025.5", "proton": "3"}
    assert tuned(cluster) == ["gpu", "other"]
    assert tuned.began[-1][1].stations.profilers == {"proton": "3"}


def test_a_machine_that_cannot_work_is_named_and_left_out(console: Console, said: io.StringIO) -> None:
    unfit = replace(CORES, id="unfit", address="10.0.0.9", versions=replace(HERE, triton="0.0"))
    assert cluster_work.fit_nodes([CORES, unfit, GPU], HERE, console) == [CORES, GPU]
    (line,) = said.getvalue().splitlines()
    assert "10.0.0.9" in line and "triton is 0.0" in line
    with pytest.raises(EnvironmentFault, match="no machine"):
        cluster_work.fit_nodes([unfit], HERE, console)


def test_a_machine_that_cannot_time_is_named_and_its_gpus_left_alone(console: Console, said: io.StringIO) -> None:
    bare = replace(OTHER, versions=replace(HERE, torch="0.0"))
    cluster: Any = ClusterStandIn([GPU, bare], {"gpu": SEEN, "other": SEEN})
    (found,) = cluster_work.find_gpus(cluster, [GPU, bare], HERE, console)
    assert found.station.node == "gpu" and cluster.asked == ["gpu"]
    (line,) = said.getvalue().splitlines()
    assert "10.0.0.3" in line and "torch is 0.0" in line


def test_a_machine_compiles_on_cores_that_its_gpus_leave_and_only_what_it_has_the_language_of() -> None:
    here = replace(HERE, cute="nvidia-cutlass-dsl 4.8.1")
    full = replace(GPU, versions=here)
    bare, busy = replace(CORES, versions=replace(here, cute="")), replace(OTHER, cpus=1)
    cluster: Any = ClusterStandIn([full, bare, busy])
    found = cluster_work.find_farm(cluster, [full, bare, busy], here, share=2)
    assert [(station.node, cores, lacks) for station, cores, lacks in found] == [
        ("gpu", 3, frozenset()), ("cores", 4, frozenset({"cute"}))
    ]  # fmt: skip
    assert cluster.cores == {"gpu": 3, "cores": 4}

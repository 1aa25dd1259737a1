"""Tunes on a cluster."""

from __future__ import annotations

from rich.console import Console

from gemm_tuner.executors.cluster.cluster_executor import Stations
from gemm_tuner.executors.cluster.ray_cluster import listed
from gemm_tuner.measure import probe
from gemm_tuner.measure.device import Machine, lock_name
from gemm_tuner.pipeline import cluster_work, run
from gemm_tuner.pipeline.cluster_work import OnCluster
from gemm_tuner.pipeline.settings import Settings
from gemm_tuner.system.terminal_table import print_line


def tune(settings: Settings, console: Console, out: Console) -> int:
    """``run.tune`` with the GPUs and the cores of a cluster; without a GPU there, times are predicted."""
    with cluster_work.connected(settings, console) as cluster:
        nodes = cluster_work.fit_nodes(cluster, console)
        recording = str(settings.replay_dir.resolve()) if settings.replay_dir else ""
        gpus = cluster_work.find_gpus(cluster, nodes, console, recording)
        farm = cluster_work.find_farm(cluster, nodes)
        print_line(console, f"cluster: {listed(nodes)}")
        # One run has a recorded GPU once for each station, and nothing of these may be locked.
        locks = ["" if recording else lock_name(one.machine.gpu(0), one.station.name) for one in gpus]
        stations = Stations(tuple((one.station, lock) for one, lock in zip(gpus, locks, strict=True)), tuple(farm))
        machine = cluster_work.machine_of(gpus) if gpus else Machine((), probe.versions(), "")
        return run.tune(settings, console, out, OnCluster(machine, stations))

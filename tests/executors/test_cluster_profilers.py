"""The profiler of a run on a cluster is one that its GPU machines have, whatever the driver's machine has."""

from __future__ import annotations

import io
import json
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cluster_stand_in import ClusterStandIn
from rich.console import Console
from samples import gpu
from thread_workers import ThreadWorker
from tuning import environment, run_options

from gemm_tuner.core.errors import EnvironmentFault
from gemm_tuner.executors.cluster import ray_cluster
from gemm_tuner.executors.cluster.cluster_executor import Stations
from gemm_tuner.executors.cluster.gpu_station import GpuStation, Seen
from gemm_tuner.executors.cluster.nodes import Node, look_here
from gemm_tuner.executors.cluster.setup import Setup
from gemm_tuner.gemm.problem import GemmProblem
from gemm_tuner.measure import device
from gemm_tuner.measure.device import Machine
from gemm_tuner.pipeline import cluster_check, cluster_profilers
from gemm_tuner.pipeline.cluster_work import FoundGpu
from gemm_tuner.pipeline.open_run import opened, profiler_used, profilers_of
from gemm_tuner.pipeline.run_log import RunLog

MACHINE = Machine((gpu(0),), {"triton": "3"}, "570")
BOTH, OLD, BARE = {"nsys": "2025.5", "proton": "3"}, {"nsys": "2023.1", "proton": "3"}, {"proton": "3"}


def on(*profilers: dict[str, str]) -> list[FoundGpu]:
    """A GPU on a machine for each of these."""
    names = [f"m{number}" for number in range(len(profilers))]
    return [
        FoundGpu(ThreadWorker(None, name, name), MACHINE, "", name, there)
        for name, there in zip(names, profilers, strict=True)
    ]


def fitting(tmp_path: Path, gpus: list[FoundGpu], **asked: Any) -> tuple[list[str], str]:
    """The machines that take part, and what is said of the others."""
    out = io.StringIO()
    options = run_options(tmp_path, GemmProblem(64, 64, 64), **asked)
    found = cluster_profilers.fit(gpus, options, Console(file=out, width=200))
    left = [one for one in gpus if one not in found]
    assert all(one.station.alive for one in found) and not any(one.station.alive for one in left)  # type: ignore[attr-defined]
    return [one.host for one in found], out.getvalue()


def test_machines_that_are_alike_all_take_part(tmp_path: Path) -> None:
    assert fitting(tmp_path, on(BOTH, BOTH)) == (["m0", "m1"], "")
    assert fitting(tmp_path, []) == ([], "")


@pytest.mark.parametrize("flag", ["profiler", "screen_with"])
def test_a_machine_without_the_profiler_that_is_asked_for_is_named_and_left_out(tmp_path: Path, flag: str) -> None:
    found, said = fitting(tmp_path, on(BARE, BOTH, BARE), **{flag: "nsys"})
    assert found == ["m1"] and said.count("no nsys") == 2 and "m0" in said and "m2" in said


@pytest.mark.parametrize("asked", ["auto", "nsys"])
def test_a_machine_with_another_version_than_most_is_named_and_left_out(tmp_path: Path, asked: str) -> None:
    found, said = fitting(tmp_path, on(OLD, BOTH, BOTH), profiler=asked)
    assert found == ["m1", "m2"] and "m0" in said and "nsys 2023.1" in said


def test_by_default_the_profiler_is_one_that_all_have_and_a_better_one_is_named(tmp_path: Path) -> None:
    gpus = on(OLD, BARE, BOTH)
    found, said = fitting(tmp_path, gpus)
    assert found == ["m0", "m1", "m2"] and "proton" in said and "nsys" in said and "m1" in said
    assert cluster_profilers.common(gpus) == BARE


def test_one_of_which_machines_have_two_versions_times_nothing(tmp_path: Path) -> None:
    """Also where a machine that was left out had decided against it."""
    gpus = on(BOTH, OLD, {"proton": "2"})
    found, _ = fitting(tmp_path, gpus)
    assert len(found) == 1
    gpus = on(BOTH, OLD, BARE)
    assert fitting(tmp_path, gpus)[0] == ["m0", "m1", "m2"] and cluster_profilers.common(gpus) == BARE
    assert cluster_profilers.common(gpus[:2]) == BARE


def test_versions_and_the_choice_are_those_of_the_gpu_machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")  # this machine has no nsys
    there = Stations((), (), {"nsys": "2099.1", "proton": "3"}).version_of
    for asked in ("auto", "nsys"):
        used = profilers_of(run_options(tmp_path, GemmProblem(64, 64, 64), profiler=asked), "cuda", True, there)
        assert (used.finals.name, used.screening) == ("nsys", None)
        assert profiler_used(used.finals, environment(), there).version == "2099.1"
    with pytest.raises(EnvironmentFault, match="ncu is not installed") as fault:
        profilers_of(run_options(tmp_path, GemmProblem(64, 64, 64), profiler="ncu"), "cuda", True, there)
    assert "nsys, proton" in fault.value.hint
    bare = run_options(tmp_path, GemmProblem(64, 64, 64), screen_with="proton")
    with pytest.raises(EnvironmentFault, match="proton"):
        profilers_of(bare, "cuda", True, Stations((), (), {"nsys": "2099.1"}).version_of)


class Opening:
    """A station that a run opens. finals: the profiler that it is told of."""

    finals = ""

    def open(self, setup: Setup) -> bool:
        self.finals = setup.finals
        return False

    def close(self) -> None: ...


def test_the_results_file_and_the_stations_are_told_of_that_profiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "")
    silent, station = Console(file=io.StringIO()), Opening()
    stations = Stations(((ThreadWorker(station), ""),), (), {"nsys": "2099.1", "proton": "3"})
    options = run_options(tmp_path, GemmProblem(64, 64, 64))
    with opened(options, replace(environment(), remote=True), RunLog(silent, silent), stations=stations) as (
        _,
        session,
    ):
        assert station.finals == "nsys"
        assert (session.results.header.profiler, session.results.header.profiler_version) == ("nsys", "2099.1")
        assert json.loads((session.folder.raw / "recording.json").read_text())["profiler_version"] == "2099.1"


@pytest.fixture
def seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Seen:
    """What a station says on a machine with a GPU and an nsys."""
    tool = tmp_path / "nsys"
    tool.write_text("#!/bin/sh\necho NVIDIA Nsight Systems version 2031.4.1\n")
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    monkeypatch.setattr(device, "look", lambda: MACHINE)
    station = GpuStation(["0"])
    found = station.look()
    station.close()
    return found


def test_a_station_knows_the_profilers_of_its_machine_and_the_list_of_machines_shows_them(
    seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert seen.machine == MACHINE and seen.profilers["nsys"] == "2031.4.1"
    assert not {"rocprof", "rocprofv3", "clock"} & set(seen.profilers)
    node = Node("gpu", "10.0.0.2", cpus=8, gpus=1, versions=look_here())
    monkeypatch.setattr(ray_cluster, "connect", lambda *_, **__: ClusterStandIn([node], {"gpu": seen}))
    (found,) = cluster_check.look("ray", Console(file=io.StringIO()))
    (line,) = [text for text in cluster_check.lines([found]) if "driver" in text]
    assert "570" in line and "nsys 2031.4.1" in line and "proton" in line

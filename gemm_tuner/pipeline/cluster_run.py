"""Tunes on a cluster: one run for each GPU model there, all at once, with a results file and a store of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

from rich.console import Console

from gemm_tuner.core.errors import EXIT_OK, EnvironmentFault
from gemm_tuner.executors.cluster.cluster_executor import Stations
from gemm_tuner.executors.cluster.nodes import gpu_files, here_for
from gemm_tuner.executors.cluster.ray_cluster import RayCluster, listed
from gemm_tuner.executors.cluster.worker import Worker
from gemm_tuner.languages.together import names_of
from gemm_tuner.measure import probe
from gemm_tuner.measure.device import Machine, lock_name
from gemm_tuner.pipeline import cluster_profilers, cluster_work, run
from gemm_tuner.pipeline.cluster_work import FoundGpu, OnCluster
from gemm_tuner.pipeline.run_options import RunOptions
from gemm_tuner.store import results_file
from gemm_tuner.system import program, progress
from gemm_tuner.system.installation import import_path
from gemm_tuner.system.processes import guarded_command, module_command
from gemm_tuner.system.terminal_table import print_line

# For the run of one GPU model: the model, and how many such runs divide the cores among them.
MODEL, SHARE = "GEMM_TUNER_CLUSTER_MODEL", "GEMM_TUNER_CLUSTER_SHARE"


def tune(options: RunOptions, console: Console, out: Console) -> int:
    """``run.tune`` with the GPUs and the cores of a cluster; without a GPU there, times are predicted. With several GPU
    models, a process for each; the exit status is then the largest of theirs. Raises EnvironmentFault where there are
    GPUs and none can be used."""
    with cluster_work.connected(options, console) as cluster:
        here = here_for(names_of(options.language))
        there = cluster_work.machines(cluster, console)
        nodes = cluster_work.fit_nodes(there, here, console)
        print_line(console, f"cluster: {listed(nodes)}")
        wanted, recording = os.environ.get(MODEL, ""), str(options.replay_dir.resolve()) if options.replay_dir else ""
        mine = [node for node in nodes if node.id in wanted.split(",")] if wanted else nodes
        gpus = cluster_work.find_gpus(cluster, mine, here, console, recording)
        if not gpus:
            cluster_work.require_gpus(there, options.arch, wanted)
        models = by_model(gpus)
        if len(models) > 1:
            require_one_model_a_machine(models)
            cluster.close()
            return tune_each(options, models, console, out)
        if gpus and not wanted:
            options = with_begun_file(options, gpus[0].model, console)
        farm = cluster_work.find_farm(cluster, nodes, here, int(os.environ.get(SHARE, "1")))
        gpus = cluster_profilers.fit(cluster_work.alike(gpus, console), options, console)
        return tune_one(options, cluster, farm, gpus, console, out)


def by_model(gpus: Sequence[FoundGpu]) -> dict[str, list[FoundGpu]]:
    """The GPUs by model, in the order of their names."""
    names = sorted({gpu.model for gpu in gpus})
    return {name: [gpu for gpu in gpus if gpu.model == name] for name in names}


def tune_one(
    options: RunOptions,
    cluster: RayCluster,
    farm: Sequence[tuple[Worker, int, frozenset[str]]],
    gpus: Sequence[FoundGpu],
    console: Console,
    out: Console,
) -> int:
    """The run of one GPU model, or of none."""
    if gpus and gpus[0].recording:
        options = replace(options, profiler="replay", replay_dir=Path(gpus[0].recording))
    # Nothing of a recording may be locked: its GPU is there once for each station.
    locks = ["" if one.recording else lock_name(one.machine.gpu(0), one.station.name) for one in gpus]
    locked = tuple((one.station, lock) for one, lock in zip(gpus, locks, strict=True))
    stations = Stations(locked, tuple(farm), cluster_profilers.common(gpus))
    machine = cluster_work.machine_of(gpus) if gpus else Machine((), probe.versions(), "")
    return run.tune(options, console, out, OnCluster(machine, stations, cluster.keep_logs))


def require_one_model_a_machine(models: Mapping[str, Sequence[FoundGpu]]) -> None:
    """Raises EnvironmentFault for a machine that has GPUs of several models: a run is given whole machines."""
    homes: dict[str, str] = {}
    for model, gpus in models.items():
        for gpu in gpus:
            other = homes.setdefault(gpu.station.node, model)
            if other != model:
                what = f"a machine has both {other} and {model}"
                raise EnvironmentFault(what, where="--cluster", hint="start Ray there with the GPUs of one model only")


def asked_for(options: RunOptions) -> Path:
    return options.results_file or options.output_dir / "tuned.yaml"


def results_files(options: RunOptions, models: Iterable[str]) -> dict[str, Path]:
    """``NAME.<gpu>.yaml`` of each GPU model, where ``NAME.yaml`` is asked for or the default."""
    asked = asked_for(options)
    return {model: asked.with_name(f"{asked.stem}.{word}{asked.suffix}") for model, word in gpu_files(models).items()}


def with_begun_file(options: RunOptions, model: str, console: Console) -> RunOptions:
    """For the only GPU model that is there: the results file that a run of several has begun for it and these sizes,
    where the one asked for does not exist; the run then goes on. A line says so.

    Not where that file may itself be what the command reads: a size file or --update.
    """
    asked, begun = asked_for(options), results_files(options, [model])[model]
    reads = bool(options.older) or any(entry.config is not None for entry in options.entries)
    if options.fresh or reads or asked.exists() or not begun.exists():
        return options
    earlier = results_file.read_earlier(begun)
    if {*earlier.read, *earlier.failures} != {entry.problem for entry in options.entries}:
        return options
    print_line(console, f"results file: {begun}, since there is no {asked}")
    return replace(options, results_file=begun)


@dataclass(frozen=True)
class ModelRun:
    """The run of one GPU model. results: its file."""

    model: str
    results: Path
    argv: list[str]
    environment: Mapping[str, str]


def runs_of(options: RunOptions, models: Mapping[str, Sequence[FoundGpu]], words: Sequence[str]) -> list[ModelRun]:
    """words: of the command line; ``-o NAME.yaml`` becomes ``NAME.<gpu>.yaml``, also where it is the default."""
    files, runs = results_files(options, models), []
    for model, gpus in models.items():
        path = files[model]
        called = {program.CALLED_AS: program.name()}
        argv = [*module_command("gemm_tuner.cli"), *words, "-o", str(path)]
        mine = ",".join(sorted({gpu.station.node for gpu in gpus}))
        own = {MODEL: mine, SHARE: str(len(models)), "PYTHONPATH": import_path(), **called}
        runs.append(ModelRun(model, path, argv, own))
    return runs


def tune_each(options: RunOptions, models: Mapping[str, Sequence[FoundGpu]], console: Console, out: Console) -> int:
    """A run for each GPU model. Their messages have the model in front; their results come when all have ended, and
    the last lines name their results files."""
    runs = runs_of(options, models, sys.argv[1:])
    options.output_dir.mkdir(parents=True, exist_ok=True)
    shown = {program.SHOWN_WIDTH: str(out.width)} if out.is_terminal else {}
    started = [Started(one, {**os.environ, **shown, **one.environment}, console) for one in runs]
    try:
        with progress.waiting("tune each model", console):
            for run_of_model in started:
                run_of_model.wait()
    except KeyboardInterrupt:  # a terminal's Ctrl-C has reached them too: they save what they have
        for run_of_model in started:
            run_of_model.wait()
        out.file.writelines(one.results for one in started)
        raise
    out.file.writelines(one.results for one in started)
    statuses = [run_of_model.wait() for run_of_model in started]
    for one, status in zip(runs, statuses, strict=True):
        print_line(out, f"{one.model}: {one.results}" + (f" (exit status {status})" if status != EXIT_OK else ""))
    return worst(statuses)


class Started:
    """The process of a GPU model's run. results: what it has printed on standard output so far."""

    def __init__(self, one: ModelRun, environment: Mapping[str, str], console: Console) -> None:
        self._printed: list[str] = []
        self._process = subprocess.Popen(
            guarded_command(one.argv), env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        passes_on = threading.Thread(target=pass_on, args=(self._process.stderr, one.model, console), daemon=True)
        collects = threading.Thread(target=self._printed.extend, args=(self._process.stdout,), daemon=True)
        self._threads = passes_on, collects
        for thread in self._threads:
            thread.start()

    @property
    def results(self) -> str:
        return "".join(self._printed)

    def wait(self) -> int:
        """Until it has ended, and all that it has printed is here; its exit status."""
        status = self._process.wait()
        for thread, pipe in zip(self._threads, (self._process.stderr, self._process.stdout), strict=True):
            thread.join()
            if pipe is not None:
                pipe.close()
        return status


def worst(statuses: Sequence[int]) -> int:
    """The exit status of several runs; for one that a signal ended (negative), that of a shell."""
    return max(128 - status if status < 0 else status for status in statuses)


def pass_on(lines: IO[str], model: str, console: Console) -> None:
    for line in lines:
        print_line(console, f"[{model}] {line.rstrip()}")

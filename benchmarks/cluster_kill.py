"""A run on a Ray cluster of this machine, of which something is killed while it works; needs Ray and no GPU.

Starts a head and NODES nodes with two cores and a GPU each, in whose place a recording is played back; each has a cache
of compiled kernels of its own. Tunes the recording's sizes on this machine alone, on the cluster, and on the cluster
again for each victim, which is killed as soon as a node holds leases of the wanted kind: that node, its actor that
holds them, a compile worker of that, or the driver, whose command is then given again. Prints what each run took and
whether its results file is the first one's byte for byte, date and run aside; exit status 1 where one is not.

    python benchmarks/cluster_kill.py [--kill compile|gpu] [--victims node actor worker driver]
"""

from __future__ import annotations

import argparse
import os
import re
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parents[1]
RECORDING = ROOT / "tests" / "data" / "h200_nsys_recording"
NODES = 4
STORE_BYTES = 80 * 2**20
OTHER = re.compile("^  (date|run): .*$", re.MULTILINE)
RUN_LIMIT_S = 400
# How leases of each kind begin: those of compiles with the hash of a script.
ACTORS = {"compile": "ray::CompileStation", "gpu": "ray::GpuActor"}
VICTIMS = ("node", "actor", "worker", "driver")
KINDS = {"compile": "item NOT LIKE 'screen%' AND item NOT LIKE 'finals%' AND item NOT LIKE 'verify%'",
         "gpu": "item LIKE 'screen%' OR item LIKE 'finals%'"}  # fmt: skip


def command(*more: str) -> list[str]:
    return [
        *(sys.executable, str(ROOT / "tune_gemm.py"), "--gemm_size_file", str(RECORDING / "sizes.yaml")),
        *("--compare", "--search", "full", "--space", str(RECORDING / "space.yaml")),
        *("--rules", str(RECORDING / "rules"), "--profiler", "replay", "--replay", str(RECORDING / "raw")),
        *("-o", "tuned.yaml", *more),
    ]


def start(folder: Path) -> Any:
    """The cluster; every node has a folder of its own for compiled kernels."""
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 0, "num_gpus": 0, "include_dashboard": False, "object_store_memory": STORE_BYTES}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    for number in range(NODES):
        own = {"GEMM_TUNER_CACHE_DIR": str(folder / f"cache{number}")}
        (folder / f"cache{number}").mkdir()
        cluster.add_node(num_cpus=2, num_gpus=1, object_store_memory=STORE_BYTES, env_vars=own)
    return cluster


def holder(folder: Path, kind: str) -> str | None:
    """A node that holds leases of this kind now."""
    for store in folder.glob("results/2*/run.sqlite"):
        with suppress(sqlite3.Error):
            base = sqlite3.connect(f"file:{store}?mode=ro", uri=True)
            query = f"SELECT node FROM leases WHERE state = 'held' AND ({KINDS[kind]}) LIMIT 1"
            rows = base.execute(query).fetchall()
            base.close()
            if rows:
                return str(rows[0][0])
    return None


def kill(victim: str, kind: str, node: Any, cluster: Any, driver: Any) -> bool:
    """Whether it was there. node: that of the cluster which holds the leases."""
    if victim == "node":
        cluster.remove_node(node, allow_graceful=False)
    elif victim == "driver":
        driver.kill()
    else:
        (raylet,) = node.all_processes["raylet"]
        under = psutil.Process(raylet.process.pid).children(recursive=True)
        actor = next(one for one in under if " ".join(one.cmdline()).startswith(ACTORS[kind]))
        # Workers are forks of what the actor has started.
        workers = [one for one in actor.children(recursive=True) if one.ppid() != actor.pid]
        for process in [actor] if victim == "actor" else workers[:1]:
            process.kill()
        return victim == "actor" or bool(workers)
    return True


def states(folder: Path) -> str:
    (store,) = folder.glob("results/2*/run.sqlite")
    base = sqlite3.connect(store)
    rows = base.execute("SELECT state, COUNT(*) FROM leases GROUP BY state ORDER BY state").fetchall()
    base.close()
    return ", ".join(f"{count} {state}" for state, count in rows)


def run(folder: Path, *more: str, cluster: Any = None, kind: str = "", victim: str = "") -> tuple[str, float, str]:
    """The results file, the seconds, and what was killed after how many."""
    folder.mkdir()
    began, killed = time.monotonic(), ""
    own = {**os.environ, "GEMM_TUNER_CACHE_DIR": str(folder / "cache"), "PYTHONPATH": str(ROOT)}
    (folder / "cache").mkdir()
    with (folder / "log").open("w") as log:
        files: dict[str, Any] = {"cwd": folder, "env": own, "stdout": log, "stderr": log}
        process = subprocess.Popen(command("--fresh", *more), **files)
        while process.poll() is None and time.monotonic() - began < RUN_LIMIT_S:
            holding = holder(folder, kind) if victim and not killed else None
            for node in [one for one in cluster.worker_nodes if one.node_id == holding] if holding else ():
                if kill(victim, kind, node, cluster, process):
                    killed = f"{victim} after {time.monotonic() - began:.1f} s, when a node held {kind} leases"
            time.sleep(0.01)
        if victim == "driver" and killed:
            process = subprocess.Popen(command(*more), **files)
            process.wait(RUN_LIMIT_S)
    if process.poll() is None:
        process.kill()
    if process.returncode != 0:
        sys.exit(f"the run failed:\n{(folder / 'log').read_text()[-2000:]}")
    return OTHER.sub("", (folder / "tuned.yaml").read_text()), time.monotonic() - began, killed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kill", choices=sorted(KINDS), default="compile", help="the leases that the victim holds")
    parser.add_argument("--victims", nargs="+", choices=VICTIMS, default=["node"])
    asked = parser.parse_args()
    os.environ.update(PYTHONPATH=str(ROOT), RAY_USAGE_STATS_ENABLED="0", RAY_raylet_start_wait_time_s="300")
    folder = Path(tempfile.mkdtemp(prefix="cluster_kill-"))
    here, here_s, _ = run(folder / "here")
    rows = [("this machine", "here", here_s, "", "")]
    cluster = start(folder)
    right = True
    try:
        for victim in ("", *asked.victims):
            name = f"killed {victim}" if victim else "cluster"
            of = {"cluster": cluster, "kind": asked.kill, "victim": victim}
            found, seconds, killed = run(folder / name, "--cluster", f"ray:{cluster.address}", **of)
            right &= found == here and bool(killed or not victim)
            said = killed or ("NOTHING" if victim else "")
            rows.append((f"{NODES} nodes", name, seconds, "the same" if found == here else "DIFFERENT", said))
    finally:
        cluster.shutdown()
    print(f"{'run':14} {'s':>6}  {'rows':10} {'leases':24} killed")
    for what, name, seconds, rows_are, killed in rows:
        print(f"{what:14} {seconds:6.1f}  {rows_are:10} {states(folder / name):24} {killed}")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())

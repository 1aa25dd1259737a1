"""A run on a Ray cluster of this machine, one of whose nodes is killed while it works; needs Ray and no GPU.

Starts a head and NODES nodes with two cores and a GPU each, in whose place a recording is played back; each has a cache
of compiled kernels of its own. Tunes the recording's sizes on this machine alone, on the cluster, and on the cluster
again while the first node that holds leases of the wanted kind is killed. Prints what each run took and whether its
results file is the first one's byte for byte, date and run aside; exit status 1 where one is not.

    python benchmarks/cluster_kill.py [--kill compile|gpu]
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

ROOT = Path(__file__).resolve().parents[1]
RECORDING = ROOT / "tests" / "data" / "h200_nsys_recording"
NODES = 4
STORE_BYTES = 80 * 2**20
OTHER = re.compile("^  (date|run): .*$", re.MULTILINE)
RUN_LIMIT_S = 400
# How leases of each kind begin: those of compiles with the hash of a script.
KINDS = {"compile": "item NOT LIKE 'screen%' AND item NOT LIKE 'finals%' AND item NOT LIKE 'verify%'",
         "gpu": "item LIKE 'screen%' OR item LIKE 'finals%'"}  # fmt: skip


def command(*more: str) -> list[str]:
    return [
        *(sys.executable, str(ROOT / "tune_gemm.py"), "--gemm_size_file", str(RECORDING / "sizes.yaml"), "--fresh"),
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


def states(folder: Path) -> str:
    (store,) = folder.glob("results/2*/run.sqlite")
    base = sqlite3.connect(store)
    rows = base.execute("SELECT state, COUNT(*) FROM leases GROUP BY state ORDER BY state").fetchall()
    base.close()
    return ", ".join(f"{count} {state}" for state, count in rows)


def run(folder: Path, *more: str, cluster: Any = None, kill: str = "") -> tuple[str, float, str]:
    """The results file, the seconds, and what was killed after how many."""
    folder.mkdir()
    began, killed = time.monotonic(), ""
    own = {**os.environ, "GEMM_TUNER_CACHE_DIR": str(folder / "cache"), "PYTHONPATH": str(ROOT)}
    (folder / "cache").mkdir()
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command(*more), cwd=folder, env=own, stdout=log, stderr=log)
        while process.poll() is None and time.monotonic() - began < RUN_LIMIT_S:
            node = holder(folder, kill) if kill and not killed else None
            if node:
                victim = next(one for one in cluster.worker_nodes if one.node_id == node)
                cluster.remove_node(victim, allow_graceful=False)
                killed = f"one of {NODES} nodes after {time.monotonic() - began:.1f} s, holding {kill} leases"
            time.sleep(0.01)
    if process.poll() is None:
        process.kill()
    if process.returncode != 0:
        sys.exit(f"the run failed:\n{(folder / 'log').read_text()[-2000:]}")
    return OTHER.sub("", (folder / "tuned.yaml").read_text()), time.monotonic() - began, killed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kill", choices=sorted(KINDS), default="compile")
    kind = parser.parse_args().kill
    os.environ.update(PYTHONPATH=str(ROOT), RAY_USAGE_STATS_ENABLED="0", RAY_raylet_start_wait_time_s="300")
    folder = Path(tempfile.mkdtemp(prefix="cluster_kill-"))
    here, here_s, _ = run(folder / "here")
    cluster = start(folder)
    try:
        there, there_s, _ = run(folder / "cluster", "--cluster", f"ray:{cluster.address}")
        of = {"cluster": cluster, "kill": kind}
        after, after_s, killed = run(folder / "killed", "--cluster", f"ray:{cluster.address}", **of)
    finally:
        cluster.shutdown()
    rows = (
        ("this machine", here_s, "", ""),
        (f"{NODES} nodes", there_s, "", "the same" if there == here else "DIFFERENT"),
        (f"{NODES} nodes, killed", after_s, killed or "NOTHING", "the same" if after == here else "DIFFERENT"),
    )
    print(f"{'run':18} {'s':>6}  {'rows':10} {'leases':30} killed")
    for (name, seconds, what, rows_are), where in zip(rows, ("here", "cluster", "killed"), strict=True):
        leases = states(folder / where)
        print(f"{name:18} {seconds:6.1f}  {rows_are:10} {leases:30} {what}")
    return 0 if there == here == after and killed else 1


if __name__ == "__main__":
    sys.exit(main())

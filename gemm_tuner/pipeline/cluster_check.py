"""Looks at the machines of a cluster: what they have, what of a run they can do, and why not more."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, TimeoutError
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console

from gemm_tuner.core.errors import EnvironmentFault
from gemm_tuner.executors.cluster import ray_cluster
from gemm_tuner.executors.cluster.gpu_station import Seen
from gemm_tuner.executors.cluster.nodes import Node, Versions, counted, faults, lacks, look_here
from gemm_tuner.executors.cluster.ray_cluster import ANSWER_LIMIT_S, GpuActor, RayCluster
from gemm_tuner.executors.cluster.worker import WorkerLost
from gemm_tuner.system import progress


@dataclass(frozen=True)
class MachineFound:
    """A machine of a cluster. gpus: "MODEL, ARCH" of each that could be looked at. compiles, times: whether a run that
    is started here would give it such work. wrong: what keeps it from more. driver, profilers: versions, as far as a
    GPU could be looked at."""

    node: Node
    gpus: tuple[str, ...]
    compiles: bool
    times: bool
    wrong: tuple[str, ...]
    driver: str = ""
    profilers: Mapping[str, str] = field(default_factory=dict)


def look(text: str, console: Console) -> list[MachineFound]:
    """text: the value of --cluster. console: shows what is being looked at. Raises EnvironmentFault
    without Ray and when no cluster answers."""
    with progress.waiting("connect to Ray", console):
        cluster = ray_cluster.connect(text, cpus=1)
    try:
        with progress.waiting("look at machines", console):
            here, nodes = look_here(), cluster.nodes()
        # All at once: one that another job has answers never.
        asked = [(node, _ask_gpus(cluster, node)) for node in nodes]
        until_s = time.monotonic() + ANSWER_LIMIT_S
        with progress.waiting("look at GPUs", console):
            return [_look_at(node, here, answers, until_s) for node, answers in asked]
    finally:
        cluster.close()


def _ask_gpus(cluster: RayCluster, node: Node) -> list[Future[Any]]:
    numbers = range(node.gpus if node.versions else 0)
    return [cluster.station(GpuActor, f"GPU {number}", node.id, "", gpus=1).call("look") for number in numbers]


def _look_at(node: Node, here: Versions, answers: Iterable[Future[Any]], until_s: float) -> MachineFound:
    """answers: of a station for each GPU, by this moment of time.monotonic()."""
    wrong = faults(node, here, times=node.gpus > 0)
    if node.gpus == 0 and node.versions:
        wrong += [f"{text}: it compiles no kernels of {name}" for name, text in lacks(node, here).items()]
    gpus, driver, profilers = [], "", dict[str, str]()
    for number, answer in enumerate(answers):
        try:
            seen: Seen = answer.result(max(0.0, until_s - time.monotonic()))
            gpu, driver, profilers = seen.machine.gpu(0), seen.machine.driver, dict(seen.profilers)
            gpus.append(f"{gpu['name']}, {gpu['arch']}")
        except TimeoutError:
            wrong.append(f"GPU {number}: another job has it")
        except (EnvironmentFault, WorkerLost) as error:
            wrong.append(f"GPU {number}: {error}")
    compiles = not faults(node, here, times=False) and node.cpus > node.gpus
    times = bool(gpus) and not faults(node, here, times=True)
    return MachineFound(node, tuple(gpus), compiles, times, tuple(wrong), driver, profilers)


def lines(found: Sequence[MachineFound]) -> Iterator[str]:
    """For people."""
    for one in found:
        does = " and ".join(word for word, can in (("compiles", one.compiles), ("times", one.times)) if can)
        has = f"{counted(one.node.cpus, 'core')}, {counted(one.node.gpus, 'GPU')}"
        none = "is given no work" + ("" if one.wrong or one.node.cpus else ", for Ray has none of its cores")
        yield f"{one.node.address}: {has}; {does or none}"
        if one.node.versions:
            of = one.node.versions
            names = ("tuner", "python", "triton", "torch", *(("cute",) if of.cute else ()))
            told = ((name, getattr(of, name) or "not installed") for name in names)
            yield f"  {', '.join(' '.join(pair) for pair in told)}"
        if one.gpus:
            tools = ", ".join(f"{name} {version}" for name, version in one.profilers.items())
            yield f"  driver {one.driver or 'not told'}; profilers: {tools or 'none'}"
        yield from (f"  GPU: {gpu}" for gpu in one.gpus)
        yield from (f"  wrong: {text}" for text in one.wrong)
    compiling, timing = sum(one.compiles for one in found), sum(len(one.gpus) for one in found if one.times)
    yield f"machines that compile: {compiling} of {len(found)}; GPUs that time: {timing}"

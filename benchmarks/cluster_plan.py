"""Estimates a large run on a cluster: measures the driver's work here, then plays the run on virtual time.

The lease code is the one of real runs (gemm_tuner/store/leases.py): every kernel, screening round, finals and check is
an item of its table; a machine of the farm is killed in the middle. Measured are the bytes of a kernel and the driver's
CPU seconds for rules and results. Compiling, GPUs, search and settled rows are not measured here: their seconds are of
benchmarks/tuning_history.md, and can be given.

    python benchmarks/cluster_plan.py [--sizes N] [--drivers N ...]

A driver is one process with its own store: one for each GPU model, and more where the list of sizes is dealt over
several runs. GPUs and cores are divided equally; one driver's share is simulated.
"""

from __future__ import annotations

import argparse
import heapq
import sys
import tempfile
import time
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from gemm_tuner.compile.compile_pool import CompilePool
from gemm_tuner.compile.compile_tasks import task_for, write_scripts
from gemm_tuner.core.language import language_of
from gemm_tuner.core.records import Status, Timing
from gemm_tuner.gemm.problem import GemmProblem
from gemm_tuner.launch.plan import SCREEN
from gemm_tuner.pipeline.prepare import Space, cut_space, state_of
from gemm_tuner.space import prune, space
from gemm_tuner.store.leases import BEAT_S, Lease, Leases
from gemm_tuner.store.store import Store

LANGUAGE = language_of("triton")
CORES, ANY_GPU = "cores", "any GPU"
CUT_SIZES = ((1, 4096, 4096), (128, 4096, 14336), (4096, 4096, 4096), (5000, 5000, 5000))
ROUNDS, KERNELS_A_SIZE, TIMINGS_A_SIZE = 3, 47, 60  # guided, 20 public sizes: benchmarks/tuning_history.md


@dataclass(frozen=True)
class Rates:
    """Seconds. compile_s: of a core for one kernel. answer_s: of the driver for one compiled kernel: unpack, store,
    lease. timing_s: of the driver for one timing. rules_s, search_s, settle_s: of the driver for a size, all rounds;
    settle_s is for its row and its table. screen_s, finals_s, check_s: of a GPU for a size. artifact_bytes: of one
    kernel."""

    compile_s: float
    answer_s: float
    timing_s: float
    rules_s: float
    search_s: float
    settle_s: float
    screen_s: float
    finals_s: float
    check_s: float
    artifact_bytes: float


def measured(kernels: int, **given_s: float) -> Rates:
    """Applies the rules of sm_90 to some sizes, compiles kernels of one with one worker, then does what a driver does
    with each. given_s: the other seconds of the rates."""
    problem = GemmProblem(512, 512, 512)
    loaded = space.load(ROOT / "rules" / "space_sm_90.yaml", "sm_90", "gemm")
    frame, rules = space.frame(loaded), tuple(prune.load_rules(ROOT / "rules", heuristics=True))
    device, columns = loaded.device, prune.columns_of(frame)
    candidates = Space(frame, columns, rules, "gemm", loaded.families)

    def cut(number: int) -> None:
        size = GemmProblem(*CUT_SIZES[number % len(CUT_SIZES)])
        state_of(candidates, size, device, cut_space(candidates, size, device))

    rules_s = timed(cut, 4 * len(CUT_SIZES))
    frame = frame.iloc[cut_space(candidates, problem, device).kept].sample(kernels, random_state=0)
    wanted = [(problem, config) for config in space.configs_of(frame, "gemm")]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        cache, there = folder / "cache", folder / "there"
        for made in (cache, folder / "scripts"):
            made.mkdir()
        scripts = write_scripts(ROOT / "templates", folder / "scripts", wanted, device.target)
        tasks = [task_for(scripts, *pair, device.target) for pair in wanted]
        scripts_dir, log = folder / "scripts", folder / "log"
        with CompilePool(LANGUAGE, device.target, 1, cache, log, scripts_dir, kind="gemm") as pool:
            results = [result for _, result in pool.run(tasks) if result.status == Status.OK]
        packed = [LANGUAGE.pack(cache, entry) for result in results for entry in result.entries]
        size = sum(len(content) for one in packed for _, content in one.files) / len(results)
        store = Store(folder / "run.sqlite")

        def answer(number: int) -> None:
            result = results[number % len(results)]
            item = f"item {number}"
            store.leases.offer([item])
            (lease,) = store.leases.take([item], "w", "n", 0.0)
            LANGUAGE.unpack(packed[number % len(packed)], there)
            store.leases.finish(lease)
            store.add_compiles({("source", item, ""): result})

        answer_s = timed(answer, 500)
        timing = Timing(problem, "name", Status.OK, (1.0,) * 5)
        timing_s = timed(lambda _: store.add_timings([timing] * 20, SCREEN), 200) / 20
        store.close()
    return Rates(answer_s=answer_s, timing_s=timing_s, rules_s=rules_s, artifact_bytes=size, **given_s)


def timed(work: Callable[[int], object], times: int) -> float:
    """CPU seconds of one call."""
    began = time.process_time()
    for number in range(times):
        work(number)
    return (time.process_time() - began) / times


@dataclass
class Simulation:
    """One driver with its share of a cluster. nodes: cores of each machine of the farm."""

    rates: Rates
    sizes: int
    gpus: int
    nodes: list[int]
    now_s: float = 0.0
    leases: Leases = field(default_factory=Leases.in_memory)
    driver_free_s: float = 0.0
    driver_s: float = 0.0
    gpu_s: float = 0.0
    core_s: float = 0.0
    lost: int = 0
    _events: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)
    _number: int = 0
    _waiting: dict[int, int] = field(default_factory=dict)  # kernels that a size's round still waits for
    _round: dict[int, int] = field(default_factory=dict)
    _home: dict[int, int] = field(default_factory=dict)
    _idle: set[int] = field(default_factory=set)
    _cores: dict[int, int] = field(default_factory=dict)  # that are free
    _held: dict[int, deque[Lease]] = field(default_factory=dict)
    _dead: set[int] = field(default_factory=set)
    _open: dict[str, deque[str]] = field(default_factory=lambda: defaultdict(deque))  # by what may take them
    _left: int = 0

    def at(self, seconds: float, what: Callable[[], None]) -> None:
        self._number += 1
        heapq.heappush(self._events, (self.now_s + seconds, self._number, what))

    def on_driver(self, seconds: float, then: Callable[[], None]) -> None:
        """The driver does one thing after another."""
        begins = max(self.now_s, self.driver_free_s)
        self.driver_free_s = begins + seconds
        self.driver_s += seconds
        self.at(self.driver_free_s - self.now_s, then)

    def run(self) -> float:
        """Seconds until every size is finished."""
        self._left, self._idle = self.sizes, set(range(self.gpus))
        self._cores, self._held = dict(enumerate(self.nodes)), {node: deque() for node in range(len(self.nodes))}
        ends = self.sizes * (self.rates.finals_s + self.rates.screen_s) / self.gpus
        if len(self.nodes) > 1:
            self.at(ends / 4, lambda: self.dies(0))
        self.at(BEAT_S, self.beats)
        # The driver begins sizes as GPUs need them, two ahead for each.
        self._next = 0
        for _ in range(min(self.sizes, 3 * self.gpus)):
            self.begin()
        while self._left and self._events:
            self.now_s, _, what = heapq.heappop(self._events)
            what()
        assert not self._left, f"{self._left} sizes were never finished"
        return self.now_s

    def beats(self) -> None:
        for worker in [f"cores{node}" for node in self._cores if node not in self._dead]:
            self.leases.beat(worker, self.now_s)
        for gpu in range(self.gpus):
            self.leases.beat(f"gpu{gpu}", self.now_s)
        if self._left:
            self.at(BEAT_S, self.beats)

    def begin(self) -> None:
        if self._next < self.sizes:
            size, self._next = self._next, self._next + 1
            self._round[size] = 0
            self.on_driver(self.rates.rules_s, lambda: self.search(size))

    def search(self, size: int) -> None:
        self.on_driver(self.rates.search_s / ROUNDS, lambda: self.compile(size))

    def compile(self, size: int) -> None:
        count = KERNELS_A_SIZE // ROUNDS
        self._waiting[size] = count
        names = [f"k {size} {self._round[size]} {kernel}" for kernel in range(count)]
        self.leases.offer(names)
        self._open[CORES].extend(names)
        self.hand_out()

    def take(self, kind: str, count: int, worker: str, node: str) -> list[Lease]:
        waiting = self._open[kind]
        names = [waiting.popleft() for _ in range(min(count, len(waiting)))]
        leases = self.leases.take(names, worker, node, self.now_s)
        assert len(leases) == len(names)
        return leases

    def hand_out(self) -> None:
        for node, free in self._cores.items():
            room = 0 if node in self._dead else free + self.nodes[node] - len(self._held[node])
            if room > 0:
                taken = self.take(CORES, room, f"cores{node}", f"node{node}")
                self._held[node].extend(taken)
                self.work(node)
                if len(taken) < room:
                    return

    def work(self, node: int) -> None:
        while self._cores[node] and self._held[node]:
            lease = self._held[node].popleft()
            self._cores[node] -= 1
            self.at(self.rates.compile_s, lambda lease=lease: self.compiled(node, lease))  # type: ignore[misc]

    def compiled(self, node: int, lease: Lease) -> None:
        if node in self._dead:
            return
        self._cores[node] += 1
        self.core_s += self.rates.compile_s
        self.work(node)
        self.on_driver(self.rates.answer_s, lambda: self.answered(lease))

    def answered(self, lease: Lease) -> None:
        size = int(lease.item.split()[1])
        if self.leases.finish(lease):
            self._waiting[size] -= 1
            if not self._waiting[size]:
                self.offer("screen", size)
        self.hand_out()

    def offer(self, stage: str, size: int) -> None:
        home = self._home.get(size)
        name = f"{stage} {size} {self._round[size]}"
        self.leases.offer([name])
        self._open[ANY_GPU if home is None else f"gpu{home}"].append(name)
        for gpu in sorted(self._idle) if home is None else [home]:
            if gpu in self._idle and self.gpu_works(gpu):
                return

    def gpu_works(self, gpu: int) -> bool:
        """An idle GPU takes what is its own, else a new size."""
        for kind in (f"gpu{gpu}", ANY_GPU):
            for lease in self.take(kind, 1, f"gpu{gpu}", f"machine{gpu}"):
                stage, size = lease.item.split()[0], int(lease.item.split()[1])
                self._home[size] = gpu
                self._idle.discard(gpu)
                seconds = {
                    "screen": self.rates.screen_s / ROUNDS,
                    "finals": self.rates.finals_s,
                    "check": self.rates.check_s,
                }[stage]
                self.gpu_s += seconds
                self.at(seconds, lambda s=stage, n=size, of=lease: self.gpu_ends(gpu, s, n, of))  # type: ignore[misc]
                return True
        return False

    def gpu_ends(self, gpu: int, stage: str, size: int, lease: Lease) -> None:
        self._idle.add(gpu)
        self.gpu_works(gpu)
        rows = TIMINGS_A_SIZE / ROUNDS if stage == "screen" else 40
        self.on_driver(rows * self.rates.timing_s, lambda: self.stage_ends(stage, size, lease))

    def stage_ends(self, stage: str, size: int, lease: Lease) -> None:
        assert self.leases.are_held([lease], self.now_s), "a lease was lost without a death"
        assert self.leases.finish(lease)
        if stage == "screen":
            self._round[size] += 1
            if self._round[size] < ROUNDS:
                self.search(size)
            else:
                self.offer("finals", size)
        elif stage == "finals":
            self.offer("check", size)
        else:
            self.on_driver(self.rates.settle_s, self.settled)

    def settled(self) -> None:
        self._left -= 1
        self.begin()

    def dies(self, node: int) -> None:
        """A machine of the farm: what it held is leased to the others."""
        self._dead.add(node)
        lost = self.leases.lose(f"cores{node}")
        self.lost = len(lost)
        self._open[CORES].extend(lease.item for lease in lost)
        self.hand_out()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, default=10_000)
    parser.add_argument("--models", type=int, default=3, help="GPU models, each of which every size is tuned for")
    parser.add_argument("--gpus", type=int, default=64)
    parser.add_argument("--cores", type=int, default=2000)
    parser.add_argument("--drivers", type=int, nargs="+", default=[3, 6, 12, 24])
    parser.add_argument("--kernels", type=int, default=40, help="that are compiled to measure")
    parser.add_argument(
        "--compile_s", type=float, default=0.28, help="of a core for a kernel: 186.4 s, 16 cores, 10 666"
    )
    parser.add_argument("--search_s", type=float, default=0.14, help="of a size: 2.8 s of 20")
    parser.add_argument("--settle_s", type=float, default=0.019, help="of a size: CPU, of 2000 sizes")
    parser.add_argument("--screen_s", type=float, default=0.4, help="of a size: 7.9 s of 20")
    parser.add_argument("--finals_s", type=float, default=1.2, help="of a size: 23.6 s of 20")
    parser.add_argument("--check_s", type=float, default=0.25, help="of a size: 5.0 s of 20")
    of = parser.parse_args()
    given = ("compile_s", "search_s", "settle_s", "screen_s", "finals_s", "check_s")
    rates = measured(of.kernels, **{name: getattr(of, name) for name in given})
    print(f"measured here: {rates.artifact_bytes / 1024:.1f} KiB a kernel; a driver's CPU takes in")
    print(f"  {1 / rates.answer_s:.0f} compiled kernels/s and {1 / rates.timing_s:.0f} timings/s into one store, and")
    print(f"  {1000 * rates.rules_s:.0f} ms for the rules of a size")
    print("drivers  sizes  GPUs  cores      s  GPUs busy  cores busy  driver busy  MB/s to a driver  leases lost")
    for drivers in of.drivers:
        sizes, gpus, cores = of.sizes * of.models // drivers, max(1, of.gpus // drivers), of.cores // drivers
        nodes = [64] * (cores // 64) + ([cores % 64] if cores % 64 else [])
        simulation = Simulation(rates, sizes, gpus, nodes)
        seconds = simulation.run()
        megabytes = sizes * KERNELS_A_SIZE * rates.artifact_bytes / seconds / 1e6
        print(
            f"{drivers:7} {sizes:6} {gpus:5} {cores:6} {seconds:6.0f} {simulation.gpu_s / gpus / seconds:10.0%} "
            f"{simulation.core_s / cores / seconds:11.1%} {simulation.driver_s / seconds:12.0%} {megabytes:17.1f} "
            f"{simulation.lost:12}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Runs without a GPU for tests: real folders, stores and sessions, and a launcher that takes a GPU's place."""

from __future__ import annotations

import io
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console
from samples import NO_GPU, RULES, TEMPLATES, device, gpu

from gemm_tuner.core.errors import EnvironmentFault
from gemm_tuner.core.records import Device, Problem, Status, Timing, Verdict
from gemm_tuner.core.script import Script
from gemm_tuner.decide.finals_plan import FinalsPlan
from gemm_tuner.gemm.config import KernelConfig
from gemm_tuner.gemm.problem import GemmProblem, as_gemm
from gemm_tuner.languages.triton.symbol_naming import naming
from gemm_tuner.launch.journal import End, Judged
from gemm_tuner.launch.plan import AA_TEST, FINALS, VENDOR, Plan, Work
from gemm_tuner.measure.budget import Budget, Costs
from gemm_tuner.measure.device import Machine
from gemm_tuner.measure.fleet import Fleet
from gemm_tuner.measure.launcher import Launcher
from gemm_tuner.measure.launcher_events import OnEvent, ignore
from gemm_tuner.measure.parse_run import Key
from gemm_tuner.measure.retry import OnFound, StageRun
from gemm_tuner.moe.problem import MoeProblem
from gemm_tuner.pipeline import prepare
from gemm_tuner.pipeline.finals import Finals
from gemm_tuner.pipeline.prepare import Environment
from gemm_tuner.pipeline.run_log import RunLog
from gemm_tuner.pipeline.run_options import RunOptions
from gemm_tuner.pipeline.session import Session, session_of
from gemm_tuner.space.prune import Pruned
from gemm_tuner.space.size_state import SizeState
from gemm_tuner.store import run_folder
from gemm_tuner.store.sizes import SizeEntry
from gemm_tuner.store.store import Store
from gemm_tuner.system.interruption import Interruption

SM_90 = device("sm_90")
# What a served time says of all processes of finals where they do not differ.
FIVE: dict[str, Any] = {"processes": 5, "process_spread_pct": 0.0}
Scripts = dict[tuple[str, str], Script]


def machine(gpus: int = 1) -> Machine:
    return Machine(tuple(gpu(index) for index in range(gpus)), NO_GPU.versions, "570.86")


def environment(gpus: int = 1) -> Environment:
    return Environment(SM_90, tuple(range(gpus)), machine(gpus))


def run_options(folder: Path, *sizes: GemmProblem, **changes: Any) -> RunOptions:
    entries = tuple(SizeEntry(size) for size in sizes)
    return RunOptions(entries, TEMPLATES, RULES, folder / "results", **changes)


def session(folder: Path, *sizes: GemmProblem, gpus: int = 1, **changes: Any) -> Session:
    """A session with a folder and a store of its own. The current folder gets generated/."""
    where = run_folder.create(folder / "results", "abcd1234", naming(TEMPLATES))
    silent = Console(file=io.StringIO())
    asked = run_options(folder, *sizes, **changes)
    log = RunLog(silent, silent)
    return session_of(asked, environment(gpus), where, Store(where.store), Interruption(), log)


def restarted(of: Session) -> Session:
    """The session of the same command after the process of this one is gone."""
    of.store.close()
    log, store = RunLog(of.log.console, of.log.out), Store(of.store.path)
    return session_of(of.options, of.environment, of.folder, store, Interruption(), log)


def limit(of: Session, budget: Budget, costs: Costs | None = None, profiler: str = "") -> Budget:
    """Gives a session another budget, and what starts under a profiler cost."""
    before = of.limits.pace
    of.limits.pace = replace(before, budget=budget, costs=costs or before.costs, profiler=profiler or before.profiler)
    return budget


def finals_of(of: Session, scripts: Scripts, gpus: Sequence[StandInGpu], plan: FinalsPlan | None = None) -> Finals:
    """The finals of a session on these GPUs."""
    fleet, results = Fleet(gpus, print), of.results
    shared = of.gpus, of.store, of.limits, of.log
    return Finals(of.planner(scripts), fleet, *shared, plan or FinalsPlan(), published=results.published)


def state_of(size: GemmProblem, configs: Sequence[KernelConfig], predicted_us: Iterable[float] = ()) -> SizeState:
    """A state whose space is these configurations; predicted best first, and better than any other, unless said
    otherwise."""
    frame = pd.DataFrame([one.to_dict() for one in configs])
    pruned = Pruned(np.arange(len(configs)), total=len(configs))
    times = list(predicted_us) or [0.001 * (1 + index) for index in range(len(configs))]
    names = [one.name for one in configs]
    return SizeState(size, frame, pruned, dict(zip(names, configs, strict=True)), dict(zip(names, times, strict=True)))


def open_ledger(candidates: prepare.Space, size: GemmProblem, of: Device) -> SizeState:
    """The account of a size with what the rules keep of a space."""
    return prepare.state_of(candidates, size, of, prepare.cut_space(candidates, size, of))


def scripts_of(states: Iterable[SizeState]) -> Scripts:
    """Names of scripts that are not read."""
    keys = {(config.family, state.problem.signature) for state in states for config in state.kept.values()}
    return {key: Script("_".join(key), "0" * 12, "_".join(key)) for key in sorted(keys)}


@dataclass
class StandInGpu(Launcher):
    """Times by a table and writes nothing. What is not in the table takes 100 us.

    statuses: of configurations that end otherwise; status None: the launcher never says what became of it.
    drift:    the part by which clocks wander from round to round, the same for all finalists of a round.
    before:   called with each plan before it runs; may raise, as a GPU does that fails.
    after_a_size: called with the plan when a size is through.
    wrong:    names that a check finds wrong.
    kernels:  own times of the kernels of a call, by name; the vendor library's under VENDOR.
    """

    us: Mapping[str, float] = field(default_factory=dict)
    statuses: Mapping[str, Status | None] = field(default_factory=dict)
    drift: float = 0.0
    jitter: float = 0.0
    vendor_us: float = 90.0
    kernels: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    before: Callable[[Plan], None] = ignore
    after_a_size: Callable[[Plan], None] = ignore
    wrong: frozenset[str] = frozenset()
    plans: list[Plan] = field(default_factory=list)
    cancelled: bool = False
    overlaps: bool = False
    stays: bool = False

    def timings(self, plan: Plan, folder: Path, on_event: OnEvent = ignore, on_found: OnFound = ignore) -> StageRun:
        self.plans.append(plan)
        self.before(plan)
        run = StageRun(starts=1)
        for work in plan.work:
            found = self._time(plan, work)
            for _, name in found:
                on_event(work.problem, End(0, name))
            on_found(found)
            run.timings.update(found)
            self.after_a_size(plan)
        return run

    def _time(self, plan: Plan, work: Work) -> dict[Key, Timing]:
        dice = random.Random(f"{len(self.plans)} {work.problem.key}")
        rounds = work.rounds or plan.method.timed_calls
        factors = [1 + self.drift * dice.random() for _ in range(rounds)]
        found: dict[Key, Timing] = {}
        for _, name in work.entries:
            status = self.statuses.get(name, Status.OK)
            if status is not None:
                ran = status in (Status.OK, Status.EARLY_STOPPED)
                samples = self._samples(name, factors, dice) if ran else ()
                of = samples, "" if ran else "it failed"
                kernels_us = self.kernels.get(name, ())
                found[work.problem, name] = Timing(work.problem, name, status, *of, kernels_us=kernels_us)
        if plan.stage == FINALS and work.vendor:
            samples = tuple(self.vendor_us * factor for factor in factors)
            kernels_us = self.kernels.get(VENDOR, ())
            found[work.problem, VENDOR] = Timing(work.problem, VENDOR, Status.OK, samples, kernels_us=kernels_us)
        if plan.stage == FINALS and work.again:
            samples = self._samples(work.again, factors, dice)
            found[work.problem, AA_TEST] = Timing(work.problem, AA_TEST, Status.OK, samples, work.again)
        return found

    def _samples(self, name: str, factors: list[float], dice: random.Random) -> tuple[float, ...]:
        us = self.us.get(name, 100.0)
        return tuple(us * factor * (1 + self.jitter * dice.gauss(0, 1)) for factor in factors)

    def verdicts(self, plan: Plan, folder: Path, on_event: OnEvent = ignore) -> None:
        self.plans.append(plan)
        for index, work in enumerate(plan.work):
            for _, name in work.entries:
                ok = name not in self.wrong
                for problem in (work.problem, odd(work.problem)):
                    verdict = Verdict(problem, name, ok, 0.0, 0.1, message="" if ok else "off")
                    on_event(work.problem, Judged.of(index, verdict))
                    if not ok:
                        break
                on_event(work.problem, End(index, name))
                if ok and plan.stop_at_first_right:
                    break

    def cancel(self) -> None:
        self.cancelled = True


def odd(problem: Problem) -> Problem:
    """Another size at which a configuration of this one is checked."""
    return problem.at(93) if isinstance(problem, MoeProblem) else replace(as_gemm(problem), m=93, n=93, k=135)


def lost(plan: Plan) -> None:
    """As ``before``: the GPU is gone."""
    raise EnvironmentFault("the GPU fell off the bus")

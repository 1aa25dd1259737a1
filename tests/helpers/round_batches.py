"""A search on a stand-in GPU, round by round."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from samples import config, problem
from tuning import StandInGpu, scripts_of, session, state_of

from gemm_tuner.core.records import CompileResult, Config, Device, Problem, Status
from gemm_tuner.gemm.problem import GemmProblem
from gemm_tuner.launch.plan import Plan
from gemm_tuner.measure.fleet import Fleet
from gemm_tuner.pipeline.rounds import Rounds
from gemm_tuner.pipeline.session import Session
from gemm_tuner.search import Proposals, Search, SizeView, make_search
from gemm_tuner.space.size_state import Named, SizeState

ONE, TWO = problem(512, 512, 512), problem(64, 64, 64)
CONFIGS = tuple(config(num_stages=stages) for stages in range(2, 8))
NAMES = [one.name for one in CONFIGS]
Pairs = list[tuple[Problem, Config]]


class Batch:
    """Two sizes, or ``sizes``, of six configurations each, predicted best first."""

    def __init__(
        self,
        folder: Path,
        *gpus: StandInGpu,
        search: Search | None = None,
        sizes: Sequence[GemmProblem] = (ONE, TWO),
        **options: Any,
    ) -> None:
        self.gpus = gpus or (StandInGpu(),)
        self.session = session(folder, *sizes, gpus=len(self.gpus), **options)
        self.states = [state_of(size, CONFIGS) for size in sizes]
        self.search = search or make_search("full", round_size=4)
        self.fleet = Fleet(self.gpus, print)

    def rounds(self, compiling: Any = None, opens: Any = None) -> Rounds:
        of, planner = self.session, self.session.planner(scripts_of(self.states))
        shared = of.gpus, of.store, of.limits, of.log
        jobs = of.options.jobs
        return Rounds(self.search, self.states, planner, self.fleet, *shared, compiling, jobs, opens=opens)

    def run(self, compiling: Any = None) -> None:
        """As a tuning runs them."""
        rounds = self.rounds(compiling)
        while asked := rounds.propose():
            rounds.learn(rounds.time(asked))

    @property
    def plans(self) -> list[Plan]:
        return [plan for gpu in self.gpus for plan in gpu.plans]


class Clock:
    """Takes the place of time's clock in the module under test."""

    def __init__(self, start_s: float) -> None:
        self.now_s = start_s

    def monotonic(self) -> float:
        return self.now_s


class CompilesSome:
    """Stands for the compile pool: books what it is asked for, the first as a spiller, and notes what it is offered.

    takes_s: of each time that it is waited for. later_s: if it is not None, of each time but the first. ready: what is
    compiled before it is asked for, by short names.
    """

    spiller = NAMES[0]

    def __init__(
        self,
        clock: Clock | None = None,
        takes_s: float = 0.0,
        later_s: float | None = None,
        ready: Collection[str] = (),
    ) -> None:
        self.events: list[tuple[str, list[str]]] = []
        self.ready = ready
        self.clock, self.takes_s = clock, takes_s
        self.later_s = takes_s if later_s is None else later_s

    def compile_sizes(self, wanted: Named, title: str, until: float, then: Pairs) -> None:
        self.events.append((title, [named(state.problem, name) for state, names in wanted for name in names]))
        if then:
            self.events.append(("meanwhile", [named(problem, config.name) for problem, config in then]))
        if self.clock is not None:
            self.clock.now_s += self.takes_s
        self.takes_s = self.later_s
        for state, names in wanted:
            for name in names:
                status = Status.SPILLED if name == self.spiller else Status.OK
                state.record_compile(name, CompileResult(name, "d", status, message="spills 9"))

    def has(self, wanted: Pairs) -> bool:
        return all(named(problem, config.name) in self.ready for problem, config in wanted)

    def left_s(self, wanted: Pairs) -> float:
        return self.later_s

    def wait_s(self, wanted: Pairs) -> float:
        return self.later_s

    def prefetch(self, wanted: Pairs) -> None:
        self.events.append(("offer", [named(problem, config.name) for problem, config in wanted]))


def named(problem: Problem, name: str) -> str:
    """A configuration of a size, in short: such as 512/0 for the first of CONFIGS."""
    return f"{problem.m}/{NAMES.index(name) if name in NAMES else name}"


class CompilesAll(CompilesSome):
    spiller = ""


def by_step(events: Sequence[tuple[str, list[str]]]) -> list[dict[str, list[str]]]:
    """What happened from one time that kernels were waited for to the next: event -> names.

    Without the order within a step, since a thread offers while another screens: which of them is first is left open.
    """
    steps: list[dict[str, list[str]]] = []
    for what, names in events:
        if what == "compile":
            steps.append({})
        assert what not in steps[-1]
        steps[-1][what] = names
    return steps


def asked(plans: Sequence[Plan]) -> list[dict[int, list[str]]]:
    return [{work.problem.m: [name for _, name in work.entries] for work in plan.work} for plan in plans]


def statuses(state: SizeState) -> dict[str, str]:
    return {name: row["status"] for name, row in state.rows.items() if "status" in row}


def clocked(of: Session) -> Clock:
    """A clock for the budget, which stands still unless a test moves it."""
    clock = Clock(of.limits.budget.began)
    of.limits.budget.clock = clock.monotonic
    return clock


class Stubborn:
    """Asks for the same name for ever."""

    def propose(self, sizes: Sequence[SizeView], device: Device) -> Proposals:
        return {ONE: [NAMES[0]]}

    def likely_next(
        self, sizes: Sequence[SizeView], device: Device, asked: Mapping[GemmProblem, Collection[str]], count: int
    ) -> Proposals:
        return {}

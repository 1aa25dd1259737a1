"""Lets launchers that wait for plans of finals and checks open the GPUs while nothing is timed on these, since the
search computes or kernels are compiled."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from gemm_tuner.decide.finals_plan import MORE_PROCESSES, PROCESSES
from gemm_tuner.launch.plan import SCREEN, Plan
from gemm_tuner.measure.fleet import Fleet
from gemm_tuner.pipeline.check_stage import CheckStage
from gemm_tuner.pipeline.gpus import Gpus
from gemm_tuner.pipeline.plans import Planner
from gemm_tuner.space.size_state import SizeState
from gemm_tuner.system.background import Background

# So many of a GPU at the same time: more take longer each, and what is to be timed waits for those that have begun.
AT_ONCE = 3
# With so many sizes the search computes for about as long as AT_ONCE launchers of each GPU take to open it. With fewer,
# screening would wait for them, and all side by side take less: they open the GPU when finals begin.
FEWEST_SIZES = 24
LOOK_EVERY_S = 0.05
# For what has begun to end: a launcher that hangs is killed when its own plan says nothing.
LIMIT_S = 60.0


@dataclass
class OpensAhead:
    """sizes: how many the search is for. plans: returns plans like those for which the GPUs are opened, by what is
    known so far; none for nothing."""

    fleet: Fleet
    gpus: Gpus
    sizes: int
    plans: Callable[[], Sequence[Plan]] = tuple
    _plans: Sequence[Plan] = ()
    _background: Background = field(default_factory=partial(Background, "opens GPUs ahead"))
    _ends: threading.Event = field(default_factory=threading.Event)
    _begun: bool = False
    _planned_open: bool = False  # all launchers of checks, and of the processes of finals that every run has
    _latest: float = 0.0  # until when what has begun is waited for
    _further: bool = False  # whether those of further processes open it, too

    def begin(self) -> None:
        """From now on until ``end`` launchers may open the GPUs, beside the caller; those for further processes that
        choose, which not every run needs, once all others are open before. Called again, it does nothing."""
        if self._begun:
            return
        self._begun, self._plans, self._further = True, self.plans(), self._planned_open
        if self._plans:
            self._ends.clear()
            self._background.begin(self._run)

    def end(self) -> None:
        """Lets no other begin, and waits for those that have begun. From the first time on, launchers for further
        processes that choose wait, too."""
        if self._plans and self.sizes >= FEWEST_SIZES:
            self.fleet.prepare_finals(PROCESSES + MORE_PROCESSES)
        self.stop()

    def stop(self) -> None:
        """As ``end``, when nothing will be timed."""
        self._latest, self._begun = time.monotonic() + LIMIT_S, False
        self._ends.set()
        self._background.end()

    @property
    def _most(self) -> int:
        """How many launchers of finals, and of checks, open a GPU; others only load scripts. Screening's always open
        it."""
        if self.sizes < FEWEST_SIZES:
            return 0
        return PROCESSES + (MORE_PROCESSES if self._further else 0)

    def _run(self) -> None:
        with self.gpus.held_if_free() as held:
            while held and self._goes_on():
                time.sleep(LOOK_EVERY_S)

    def _goes_on(self) -> bool:
        ends = self._ends.is_set()
        if ends and time.monotonic() > self._latest:
            return False
        opening = self.fleet.open_ahead(self._plans, 0 if ends else AT_ONCE, self._most)
        self._planned_open |= not opening.now and not opening.left
        return opening.now > 0 or (opening.left > 0 and not ends)


def plans_of(
    states: Sequence[SizeState], places: Callable[[SizeState], int], planner: Planner, checks: CheckStage
) -> Sequence[Plan]:
    """Plans like those of the screening, finals and checks of these sizes, with the best of screening so far as
    finalists: their kernels are read meanwhile. places: returns their number."""
    best = [(state, state.fastest(places(state), state.own)) for state in states]
    return planner.opening([(state, []) for state in states], SCREEN), planner.opening(best), checks.opening(states)

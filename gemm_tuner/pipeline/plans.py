"""Writes the plans that launchers execute."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from gemm_tuner.core.records import Device
from gemm_tuner.core.script import Script
from gemm_tuner.launch.plan import ANYWHERE, FINALS, SCREEN, Method, Plan, Work
from gemm_tuner.measure.fleet import deal, starts_for, starts_for_finals
from gemm_tuner.pipeline.run_options import RunOptions
from gemm_tuner.space.size_state import OfSize, SizeState
from gemm_tuner.store.run_folder import RunFolder

# A flush of L2 reads this many times its size.
FLUSH_L2_TIMES = 2
# Of screening: two calls of the reference between so many configurations of six calls each.
REFERENCE_EVERY = 8

PlansOf = Callable[[list[Work]], list[tuple[Plan, Path]]]


class Planner:
    """Writes plans for a run's scripts."""

    def __init__(
        self, options: RunOptions, device: Device, folder: RunFolder, scripts: dict[tuple[str, str], Script]
    ) -> None:
        self._options, self._device, self._folder = options, device, folder
        self._paths = tuple(script.file for script in scripts.values())
        self._index = {key: number for number, key in enumerate(scripts)}

    def work(self, state: SizeState, names: Iterable[str]) -> Work:
        entries = [(self._index[state.kept[name].family, state.problem.signature], name) for name in names]
        return Work(state.problem, tuple(entries))

    def method(self, calls: int) -> Method:
        """How to time calls: with a flush of L2 before each call, or with rotation through operands larger than L2."""
        options = self._options
        return Method(
            warmup_calls=options.warmup,
            timed_calls=calls,
            flush_bytes=FLUSH_L2_TIMES * self._device.l2_bytes,
            rotating_bytes=options.rotating_mib * 2**20,
            init_type=options.init_type,
            seed=options.seed,
        )

    def screen(self, jobs: int, deadline: float) -> PlansOf:
        """Plans of a round of screening, in ``jobs`` profiler starts. deadline: Unix time; 0 for none."""
        method = replace(self.method(self._options.screen_calls), reference_every=REFERENCE_EVERY)
        plan = Plan(SCREEN, self._paths, (), method, deadline=deadline)
        return lambda share: self._filled(plan, deal(share, max(jobs, starts_for(share))))

    def opening(self, sizes: Iterable[OfSize], stage: str = FINALS) -> Plan:
        """A plan like those of finals or screening of these sizes, with the configurations that are known by now."""
        works = tuple(replace(self.work(*one), vendor=stage == FINALS) for one in sizes)
        return Plan(stage, self._paths, works, self.method(self._options.iters))

    def finals(
        self, process: int = 0, deadline: float = 0.0, *, together: bool = False, place: str = ANYWHERE
    ) -> PlansOf:
        """Plans of the finals process with this number. deadline: Unix time after which only the minimum number of
        rounds is completed; 0 for none. together, place: see ``launch.plan.Plan``."""
        method = self.method(self._options.iters)
        plan = Plan(FINALS, self._paths, (), method, deadline=deadline, process=process, together=together, place=place)
        return lambda share: self._filled(plan, deal(share, starts_for_finals(share, method.timed_calls)))

    def _filled(self, plan: Plan, parts: list[list[Work]]) -> list[tuple[Plan, Path]]:
        """A copy of the plan for each part's work, and a new folder for each."""
        return [(replace(plan, work=tuple(part)), self._folder.stage(plan.stage)) for part in parts if part]

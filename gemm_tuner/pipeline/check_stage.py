"""The check stage: compiles the kernels for checks, holds the GPUs, and records verdicts as they arrive."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from gemm_tuner.compile.compile_tasks import interleaved
from gemm_tuner.core.records import Config, Problem, Verdict
from gemm_tuner.core.script import Script
from gemm_tuner.core.workload import workload_of
from gemm_tuner.launch.plan import Plan
from gemm_tuner.measure.fleet import Fleet
from gemm_tuner.measure.launcher import Checker
from gemm_tuner.pipeline.checks_ahead import ChecksAhead
from gemm_tuner.pipeline.compile_stage import CompileStage
from gemm_tuner.pipeline.gpus import Gpus
from gemm_tuner.pipeline.limits import Limits
from gemm_tuner.pipeline.run_log import RunLog
from gemm_tuner.pipeline.verify import OnDecided, Verification, verify_plan, with_jurors
from gemm_tuner.space.size_state import Named, SizeState
from gemm_tuner.store.run_folder import RunFolder
from gemm_tuner.store.store import Store

# So many that may win a size that is not decided are checked before the ranking is known, if only the first right one
# counts.
CHECKED_AHEAD = 2
# More than the contexts of nine launchers take; and a multiple of a size's operands that leaves room for copies and
# scratch, of fp8 five times as much.
OPEN_BYTES, OPERANDS_TIMES = 9 * 2**30, 6
# Number of finalists per size whose odd-size kernels are compiled before the check; others are compiled during it.
ODD_COMPILES_A_SIZE = 2


@dataclass
class CheckStage:
    """Runs checks of a run.

    scripts:     by family and signature.
    compiling:   compiles the kernels of odd sizes before a check on a GPU; None leaves that to the check.
    all_of_them: check every candidate instead of stopping at the first correct one.
    seed:        of the operands.
    """

    scripts: Mapping[tuple[str, str], Script]
    gpus: Gpus
    folder: RunFolder
    store: Store
    limits: Limits
    log: RunLog
    compiling: CompileStage | None = None
    all_of_them: bool = False
    seed: int = 0
    _ahead: ChecksAhead | None = None

    def may_open_ahead(self, fleet: Fleet) -> bool:
        """Whether launchers may wait for plans with a GPU that is open, and check beside others."""
        return self.gpus.environment.source == "measured" and fleet.overlaps and not self.limits.budget.bounded

    def has_room(self, states: Iterable[SizeState]) -> bool:
        """Whether the contexts of launchers that wait leave these sizes the memory that their screening needs."""
        largest = max((state.problem.bytes_moved for state in states), default=0)
        return OPEN_BYTES + OPERANDS_TIMES * largest <= self.gpus.device.memory_bytes

    @contextmanager
    def beside_finals(
        self, fleet: Fleet, finalists: Named, leading: Callable[[int], Named]
    ) -> Iterator[Callable[[], None]]:
        """A function that begins to check finalists, for the moment from which on nothing else needs the GPUs. What has
        begun ends with the block; ``run`` then knows what came of it.

        leading: returns up to so many finalists of each size that may win it, and what its row would name beside its
        winner, when the check begins.

        Raises what the check raised, also where that has ended the launchers of the block (Fleet.cancel).
        """
        wanted = self.may_open_ahead(fleet)
        self._ahead = ChecksAhead(fleet, partial(self._plan_ahead, finalists, leading)) if wanted else None
        if wanted:
            fleet.open_check(self._to_open(finalists))
        try:
            yield self._ahead.begin if self._ahead else lambda: None
        except BaseException as error:
            fleet.cancel()
            if self._ahead and isinstance(error, KeyboardInterrupt) and not self.limits.interruption.requested:
                self._ahead.end()
            raise
        if self._ahead:
            with self.log.waiting("check"):
                self._ahead.end()

    def opening(self, states: Sequence[SizeState]) -> Plan:
        """A plan like that of a check of these sizes, which has no configurations yet."""
        return self._to_open([(state, []) for state in states])

    def _to_open(self, finalists: Named) -> Plan:
        """A plan of the problem of each script whose reference takes least, without configurations, and then of all
        finalists, whose kernels may be read while finals run."""
        states = sorted((state for state, _ in finalists), key=lambda state: state.problem.flops, reverse=True)
        of = {(state.problem.kind, state.problem.signature): state for state in states}
        opened: Named = [(state, []) for state in of.values()]
        named = [(state, names) for state, names in finalists if names]
        return verify_plan([*opened, *named], self.scripts, self.seed, all_of_them=True)

    def _plan_ahead(self, finalists: Named, leading: Callable[[int], Named]) -> tuple[Plan, Path] | None:
        """A plan for finalists whose kernels are compiled: all of them if all are checked, else those that lead. None
        without any."""
        compiling = self.compiling
        if compiling is None:
            return None
        order = [
            (state, [name for name in names if compiling.has(self._odd_sizes([(state, [name])], 0))])
            for state, names in (finalists if self.all_of_them else leading(CHECKED_AHEAD))
            if not workload_of(state.problem.kind).compares_configs(state.problem)
        ]
        order = [(state, names) for state, names in order if names]
        if not order:
            return None
        return verify_plan(order, self.scripts, self.seed, all_of_them=True), self.folder.stage("verify")

    def run(self, checker: Checker, order: Named, on_decided: OnDecided | None = None) -> dict[Problem, list[Verdict]]:
        """Checks candidates, best first. Verdicts are stored; ``on_decided`` is called as soon as a size is decided.

        Returns all verdicts of each size, including those of wrong candidates. Raises KeyboardInterrupt if the run is
        to end; sizes that were not checked remain open for a resumed run.
        """
        if not order:
            return {}
        budget, pace, measured = self.limits.budget, self.limits.pace, self.gpus.environment.source == "measured"
        if self.compiling is not None and measured:
            self._compile_odd_sizes(self.compiling, order)
        with self.gpus.held(), self.log.step("check", len(order)) as step:

            def decided(problem: Problem, name: str | None, verdicts: list[Verdict]) -> None:
                if on_decided is not None:
                    on_decided(problem, name, verdicts)
                step.advance()

            verification = Verification(order, decided, self.store, all_of_them=self.all_of_them)
            left = self._ahead.tell(verification, order) if self._ahead else order
            # Measured from here, because waiting for the GPU does not count.
            begun, deadline = budget.clock(), pace.check_deadline()
            if left:
                of = with_jurors(left), self.scripts, self.seed
                plan = verify_plan(*of, all_of_them=self.all_of_them, deadline=deadline)
                checker.verdicts(plan, self.folder.stage("verify"), verification.hear)
            if measured and left == order:
                pace.count_check(len(order), budget.clock() - begun)
            self.limits.interruption.check()
            verification.finish()
        return {
            problem: [v for some in size.verdicts.values() for v in some]
            for problem, size in verification.sizes.items()
        }

    def check_others(self, checker: Checker, states: Sequence[SizeState]) -> None:
        """Checks all timed configurations of finished sizes that are not checked yet, and records those that are wrong
        or unstable. Choices do not change, because chosen configurations have already been checked."""
        order = []
        for state in states:
            known = self.store.checked(state.problem)
            together = workload_of(state.problem.kind).compares_configs(state.problem)
            timed = state.timed()
            names = [name for name in timed if together or name not in known]
            if set(names) - known:
                order.append((state, names))
        self.run(checker, order)

    def prefetch(self, finalists: Named) -> None:
        """Lets idle compile workers compile kernels for the check of these finalists during their finals, those of the
        fastest of screening first."""
        if self.compiling is not None and self.gpus.environment.source == "measured":
            self.compiling.prefetch(self._odd_sizes(finalists, 0))

    def _compile_odd_sizes(self, compiling: CompileStage, order: Named) -> None:
        """Compiles the kernels for the companion sizes of candidates, as long as the budget allows."""
        check, most = self.limits.pace.check(), 0 if self.all_of_them else ODD_COMPILES_A_SIZE
        until = self.limits.budget.until(check.of(len(order)))
        compiling.compile(self._odd_sizes(order, most), "compile for checks", until)

    def _odd_sizes(self, order: Named, most: int) -> list[tuple[Problem, Config]]:
        """The companion sizes of the first ``most`` candidates of each size (0: all), interleaved over sizes."""
        target = self.gpus.device.target

        def companions(problem: Problem, config: Config) -> tuple[Problem, ...]:
            workload = workload_of(problem.kind)
            descriptors = workload.loads_by_descriptor(config, target)
            sizes = workload.check_problems(problem, config.to_dict(), descriptors=descriptors, interpreted=False)
            return sizes[1:]

        wanted = interleaved([(state, names[: most or None]) for state, names in order])
        return [(other, config) for problem, config in wanted for other in companions(problem, config)]

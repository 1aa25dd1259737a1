"""Loads kernels before a recording begins: the vendor library's, and those whose first call loads them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from types import ModuleType

from gemm_tuner.core.records import Problem, Status
from gemm_tuner.core.workload import launch_all, workload_of
from gemm_tuner.launch.candidates import WorkOperands
from gemm_tuner.launch.failures import report_failure, status_of
from gemm_tuner.launch.journal import LOADING, RECORDING, VENDOR_CALLS, Begin, Journal, Ran
from gemm_tuner.launch.plan import Method, Plan, Work
from gemm_tuner.launch.processor import Processor
from gemm_tuner.launch.stopwatch import Stopwatch


def loads_when_called(script: ModuleType) -> bool:
    """Whether the first call of each kernel loads its machine code, as in CuTe DSL: by cudaLibraryLoadData, a runtime
    call of CUDA 12.8. nsys stops its import at the first call that it does not know, so this must not be recorded."""
    return bool(getattr(script, "LOADS_WHEN_CALLED", False))


@dataclass
class LoadedAhead:
    """What a launcher has done before its plan came: the sizes of which it has loaded the vendor library's kernels, and
    whether recording has begun."""

    vendors: set[Problem] = field(default_factory=set)
    records: bool = False

    def has_called(self, plan: Plan) -> bool:
        """Whether the vendor library has been called for all sizes of a plan that it is timed for."""
        return all(
            work.problem in self.vendors or not workload_of(work.problem.kind).has_baseline_call
            for work in plan.work
            if work.vendor
        )


class Loading:
    """What a launcher loads before its profiler records, and the begin of that.

    ``load`` does so for all works, or, called again, for those that failed before: launchers may load side by side
    before their turns, and have the memory to themselves in it. Recording begins when nothing is left, or at the last
    call. What still fails then is reported by the stage, which meets it again.

    spent: gets the time of VENDOR_CALLS, LOADING and RECORDING. ahead: what is done already, which grows.
    """

    def __init__(
        self,
        plan: Plan,
        journal: Journal,
        scripts: list[ModuleType],
        processor: Processor,
        spent: Stopwatch,
        ahead: LoadedAhead | None = None,
    ) -> None:
        self._plan, self._journal, self._scripts = plan, journal, scripts
        self.processor, self._spent, self._ahead = processor, spent, ahead or LoadedAhead()
        # The largest first: its operands leave memory that those of others take without a call of the driver.
        self._vendor = sorted(range(len(plan.work)), key=lambda at: -plan.work[at].problem.bytes_moved)
        self._kernels = list(range(len(plan.work))) if plan.capture_range else []
        self._done = False

    def load(self, *, last: bool) -> None:
        """Raises StickyError for a call that loses the GPU, which is attributed to its configuration."""
        if self._done:
            return
        with self._spent.of(VENDOR_CALLS):
            self._vendor = [index for index in self._vendor if not self._warms(index)]
            self.processor.wait()
            self.processor.free_memory()
        with self._spent.of(LOADING):
            self._kernels = [index for index in self._kernels if not self._loads(index)]
        ends = last or not (self._vendor or self._kernels)
        if ends and self._plan.capture_range and not self._ahead.records:
            with self._spent.of(RECORDING):
                self.processor.start_recording()
            self._ahead.records = True
        self._done = ends  # not before: the profiler may find no memory for its buffers, and begins in the turn then

    @property
    def done(self) -> bool:
        """Whether recording has begun."""
        return self._done

    def _warms(self, index: int) -> bool:
        """Calls the vendor library once for a size, so that it selects and loads its kernels; whether that worked."""
        work, device = self._plan.work[index], self._plan.device
        workload = workload_of(work.problem.kind)
        if work.problem in self._ahead.vendors:
            return True
        if work.vendor and workload.has_baseline_call:
            try:
                workload.require_memory(work.problem, 0, device)
                (operands,) = workload.operands(work.problem, 0, "zeros", 0, device)
                call = workload.baseline_call(work.problem, operands)
                if call is not None:
                    call()
            except (MemoryError, RuntimeError, ValueError):
                return False
            self._ahead.vendors.add(work.problem)
        return True

    def _loads(self, index: int) -> bool:
        """Calls each kernel of a work whose machine code is loaded by its first call: a trace with such a call has no
        kernel. Whether all calls worked. What they needed is freed, unless the GPU is lost."""
        work = self._plan.work[index]
        called = (*work.entries, *work.reference)
        loaded = [entry for entry in called if loads_when_called(self._scripts[entry[0]])]
        if not loaded:
            return True
        worked = self._call_all(index, loaded)
        self.processor.free_memory()
        return worked

    def _call_all(self, index: int, entries: Iterable[tuple[int, str]]) -> bool:
        work, placement = self._plan.work[index], self.processor.placement(self._plan.method.seed, self._plan.process)
        try:
            operands = WorkOperands(work, Method(), self._plan.device, placement)
        except Exception:
            return False
        called = [self._calls(index, entry, operands) for entry in entries]
        return all(called)

    def _calls(self, index: int, entry: tuple[int, str], operands: WorkOperands) -> bool:
        """A crash of the reference is attributed to an entry, as in screening: the reference's own result is known.
        After the call nothing runs: what then ends the process, which may wait for its turn, is no entry's fault."""
        script, name = entry
        crashed, worked = blamed(self._plan.work[index], name), True
        self._journal.write(Begin(index, crashed))
        try:
            launch_all(operands.launches(self._scripts[script], name)[0])
            self.processor.wait()
        except Exception as error:
            if status_of(error) is Status.CRASHED:
                report_failure(self._journal, index, crashed, error)
            worked = False
        self._journal.write(Ran(index, crashed))
        return worked


def blamed(work: Work, name: str) -> str:
    own: Iterable[str] = (entry for _, entry in work.entries)
    return name if name in own else work.entries[0][1]

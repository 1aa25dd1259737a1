"""Loads kernels before a recording begins: the vendor library's, and those whose first call loads them."""

from __future__ import annotations

from collections.abc import Iterable
from types import ModuleType

from gemm_tuner.core.records import Status
from gemm_tuner.core.workload import launch_all, workload_of
from gemm_tuner.launch.candidates import WorkOperands
from gemm_tuner.launch.failures import report_failure, status_of
from gemm_tuner.launch.journal import LOADING, RECORDING, VENDOR_CALLS, Begin, Journal
from gemm_tuner.launch.plan import Method, Plan, Work
from gemm_tuner.launch.processor import Processor
from gemm_tuner.launch.stopwatch import Stopwatch


def loads_when_called(script: ModuleType) -> bool:
    """Whether the first call of each kernel loads its machine code, as in CuTe DSL: by cudaLibraryLoadData, a runtime
    call of CUDA 12.8. nsys stops its import at the first call that it does not know, so this must not be recorded."""
    return bool(getattr(script, "LOADS_WHEN_CALLED", False))


class Loading:
    """What a launcher loads before its profiler records, and the begin of that.

    ``load`` does so for all works, or, called again, for those that did not fit the GPU's memory before: launchers may
    load side by side before their turns, and have the memory to themselves in it. Recording begins when nothing is
    left, or at the last call. Other failures are reported by the stage, which meets them again.

    spent: gets the time of VENDOR_CALLS, LOADING and RECORDING.
    """

    def __init__(
        self, plan: Plan, journal: Journal, scripts: list[ModuleType], processor: Processor, spent: Stopwatch
    ) -> None:
        self._plan, self._journal, self._scripts = plan, journal, scripts
        self._processor, self._spent = processor, spent
        self._vendor = list(range(len(plan.work)))
        self._kernels = self._vendor if plan.capture_range else []
        self._done = False

    def load(self, *, last: bool) -> None:
        """Raises StickyError for a call that loses the GPU, which is attributed to its configuration."""
        if self._done:
            return
        with self._spent.of(VENDOR_CALLS):
            self._vendor = [index for index in self._vendor if not self._warms(index)]
            self._processor.wait()
            self._processor.free_memory()
        with self._spent.of(LOADING):
            self._kernels = [index for index in self._kernels if not self._loads(index)]
        self._done = last or not (self._vendor or self._kernels)
        if self._done and self._plan.capture_range:
            with self._spent.of(RECORDING):
                self._processor.start_recording()

    def _warms(self, index: int) -> bool:
        """Calls the vendor library once for a size, so that it selects and loads its kernels; whether that fitted the
        GPU."""
        work, device = self._plan.work[index], self._plan.device
        workload = workload_of(work.problem.kind)
        if work.vendor and workload.has_baseline_call:
            try:
                workload.require_memory(work.problem, 0, device)
                (operands,) = workload.operands(work.problem, 0, "zeros", 0, device)
                call = workload.baseline_call(work.problem, operands)
                if call is not None:
                    call()
            except (MemoryError, RuntimeError, ValueError) as error:
                return fitted(error)
        return True

    def _loads(self, index: int) -> bool:
        """Calls each kernel of a work whose machine code is loaded by its first call: a trace with such a call has no
        kernel. Whether that fitted the GPU."""
        work = self._plan.work[index]
        called = (*work.entries, *work.reference)
        loaded = [entry for entry in called if loads_when_called(self._scripts[entry[0]])]
        if not loaded:
            return True
        try:
            placement = self._processor.placement(self._plan.method.seed, self._plan.process)
            operands = WorkOperands(work, Method(), self._plan.device, placement)
        except Exception as error:
            return fitted(error)
        try:
            called_all = [self._calls(index, entry, operands) for entry in loaded]
            return all(called_all)
        finally:
            del operands
            self._processor.free_memory()

    def _calls(self, index: int, entry: tuple[int, str], operands: WorkOperands) -> bool:
        """A crash of the reference is attributed to an entry, as in screening: the reference's own result is known."""
        script, name = entry
        crashed = blamed(self._plan.work[index], name)
        self._journal.write(Begin(index, crashed))
        try:
            launch_all(operands.launches(self._scripts[script], name)[0])
            self._processor.wait()
        except Exception as error:
            if status_of(error) is Status.CRASHED:
                report_failure(self._journal, index, crashed, error)
            return fitted(error)
        return True


def fitted(error: BaseException) -> bool:
    """Whether what failed did so for another reason than the GPU's memory."""
    return not isinstance(error, MemoryError) and status_of(error) is not Status.OUT_OF_RESOURCES


def blamed(work: Work, name: str) -> str:
    own: Iterable[str] = (entry for _, entry in work.entries)
    return name if name in own else work.entries[0][1]

"""The candidates to time: configurations and the vendor library's call, prepared on operands of one problem."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

from gemm_tuner.core.workload import Launch, PreparedLaunches, workload_of
from gemm_tuner.languages.scratch import ScratchPool, count_sms
from gemm_tuner.launch.plan import VENDOR, Method, Work
from gemm_tuner.launch.processor import Placed

if TYPE_CHECKING:
    from gemm_tuner.launch.bench import Bench


Before = Sequence[Callable[[], None]]


class Candidate:
    """One configuration of one problem, ready to launch on rotating sets of operands. before: for each set, a function
    to call before each launch. turn: number of the next call."""

    def __init__(self, work: int, name: str, launches: list[list[Launch]], before: Before = (), turn: int = 0) -> None:
        self.work, self.name, self._launches, self._turn, self._before = work, name, launches, turn, before
        self.symbols = tuple(launch[0] for launch in launches[0])
        self.launch_us = 0.0  # shortest time of the host to launch a call; 0 before the first call

    def prepare(self) -> None:
        """Prepares the next call, outside of its timed interval."""
        if self._before:
            self._before[self._turn % len(self._before)]()

    def launch(self, bench: Bench) -> None:
        bench.launch(self._launches[self._turn % len(self._launches)])
        self._turn += 1


class VendorCandidate:
    """The vendor library's call, ready to launch."""

    def __init__(self, work: int, calls: list[Any]) -> None:
        self.work, self.name, self._calls, self._turn = work, VENDOR, calls, 0
        self.symbols: tuple[str, ...] = ()
        self.launch_us = 0.0

    def prepare(self) -> None: ...

    def launch(self, bench: Bench) -> None:
        bench.launch_vendor(self._calls[self._turn % len(self._calls)])
        self._turn += 1


class WorkOperands:
    """Operands and scratch memory of one problem; scratch grows to the need of the largest configuration."""

    def __init__(self, work: Work, method: Method, device: str, placement: Placed) -> None:
        self.problem, self._scratch, self._num_sms = work.problem, ScratchPool(device), count_sms(device)
        self._workload = workload_of(work.problem.kind)
        self._workload.require_memory(work.problem, method.rotating_bytes, device)
        made = self._workload.operands(work.problem, method.rotating_bytes, method.init_type, method.seed, device)
        self.sets = placement.moved(made)
        before = [self._workload.before_call(self.problem, operands) for operands in self.sets]
        self._before = [one for one in before if one is not None]

    def outgrow(self, flush_bytes: int) -> bool:
        """Whether the copies of the operands are so large that rotation alone evicts each of them from L2."""
        apart = self._workload.sets_are_apart and len(self.sets) > 1
        return apart and len(self.sets) * self.problem.bytes_moved >= flush_bytes

    def scratch_of(self, script: ModuleType, name: str) -> tuple[int, int]:
        """The numbers of (fp32 partial sums, int32 locks) that a configuration needs."""
        return self._workload.scratch(script, script.CONFIGS[name], self.problem, self._num_sms)

    def candidate(self, work: int, script: ModuleType, name: str, shown: str = "", turn: int = 0) -> Candidate:
        """The candidate for a configuration. shown: its name in the journal, if different. turn: number of its first
        call, which takes the operands of that call."""
        launches = self.launches(script, name)
        own = [one.ready for one in launches if isinstance(one, PreparedLaunches) and one.ready]
        return Candidate(work, shown or name, launches, own or self._before, turn)

    def launches(self, script: ModuleType, name: str) -> list[list[Launch]]:
        """The launches of a configuration on each set of operands."""
        config, scratch = script.CONFIGS[name], self._scratch.take(*self.scratch_of(script, name))
        calls = self._workload.launches
        return [calls(script, config, self.problem, operands, scratch, self._num_sms) for operands in self.sets]

    def baseline_calls(self) -> list[Any]:
        """The vendor library's call on each set of operands; empty if it has none."""
        calls = [self._workload.baseline_call(self.problem, operands) for operands in self.sets]
        return [] if None in calls else calls

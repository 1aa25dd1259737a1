"""Calls of one configuration between the others of its size in screening: they show how the GPU's clocks drift.

A GPU that a large size drives to its power limit lowers its clocks by up to a quarter, depending on what ran before.
What is screened then would lose against what was screened earlier; ``measure/drift.py`` takes that out of the times.
"""

from __future__ import annotations

from types import ModuleType

from gemm_tuner.core.records import Status
from gemm_tuner.launch.bench import Bench
from gemm_tuner.launch.candidates import WorkOperands
from gemm_tuner.launch.failures import status_of
from gemm_tuner.launch.plan import REFERENCE, TIRING_CALL_US, Work

CALLS = 2  # each time; their difference tells noise from drift


class Reference:
    """Of a work that is screened. Its calls are journalled between ``begin`` and ``end`` of another configuration. They
    take the same operands as its first timed calls took."""

    def __init__(self, bench: Bench, operands: WorkOperands, index: int, work: Work, scripts: list[ModuleType]) -> None:
        self._bench, self._operands, self._index, self._scripts = bench, operands, index, scripts
        self._every = bench.method.reference_every if bench.processor.idles else 0
        self._entry = next(iter(work.reference), None) if work.reference_us > TIRING_CALL_US else None
        self._is_chosen = bool(work.reference)
        self._since = self._every

    def offer(self, entry: tuple[int, str], waited_us: float) -> None:
        """Takes the first configuration that is no loser, if its calls are long enough to heat the GPU."""
        if not self._is_chosen and waited_us > TIRING_CALL_US:
            self._entry, self._since = entry, 0
        self._is_chosen = True

    def call_when_due(self, *, last: bool = False) -> None:
        """Calls it where enough configurations have come since, and after the last. Raises what loses the GPU."""
        if self._entry is None or not self._every or not (last or self._since >= self._every):
            return
        self._since = 0
        script, name = self._entry
        try:
            turn = self._bench.method.warmup_calls
            candidate = self._operands.candidate(self._index, self._scripts[script], name, REFERENCE, turn)
            for _ in range(CALLS):
                self._bench.call(candidate, warm=False)
            self._bench.processor.wait()
        except Exception as error:
            if status_of(error) is Status.CRASHED:
                raise
            self._entry = None

    def count(self) -> None:
        """One more configuration has come."""
        self._since += 1

"""The examiners of the problems at which the entries of one work are checked."""

from __future__ import annotations

from types import ModuleType

from gemm_tuner.core.judges import Examiner
from gemm_tuner.core.records import Problem, Verdict
from gemm_tuner.core.workload import Workload
from gemm_tuner.launch.failures import is_out_of_memory
from gemm_tuner.launch.processor import processor_of

# Entries of a work share the tuned size; their companions, which are small, depend on their blocks and often agree.
MOST_EXAMINERS = 8


class Examiners:
    """At most MOST_EXAMINERS, each with what its problem's checks share; the one that was not asked for longest goes.
    They are let go with this object, and the memory with them.

    several: several entries will be checked. One that is alone, as most are where checks stop at the first that is
    right, is checked by itself: to keep something for others, and to see that it stays as it is, takes time.
    """

    def __init__(self, workload: Workload, seed: int, device: str, *, several: bool) -> None:
        self._workload, self._seed, self._device, self._several = workload, seed, device, several
        self._held: dict[Problem, Examiner] = {}

    def verdict(self, problem: Problem, script: ModuleType, name: str) -> Verdict:
        """Runs one configuration. Raises what its launch raises, and lets go of all examiners then.

        A configuration for which there is no memory is checked once more by itself, when nothing is kept.
        """
        try:
            if self._several:
                return self._examiner(problem).verdict(script, name)
            return self._alone(problem, script, name)
        except Exception as error:
            self._held.clear()
            if not is_out_of_memory(error):
                raise
        processor_of(self._device).free_memory()  # another launcher, or the driver, may have lacked it
        return self._alone(problem, script, name)

    def _alone(self, problem: Problem, script: ModuleType, name: str) -> Verdict:
        return self._workload.check(script, problem, name, self._seed, self._device)

    def _examiner(self, problem: Problem) -> Examiner:
        examiner = self._held.pop(problem, None) or self._workload.examiner(problem, self._seed, self._device)
        self._held[problem] = examiner  # the last in order
        if len(self._held) > MOST_EXAMINERS:
            del self._held[next(iter(self._held))]
        return examiner

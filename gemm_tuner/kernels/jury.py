"""Configurations of a kernel without a reference, compared with each other. Needs torch."""

from __future__ import annotations

from types import ModuleType

from gemm_tuner.core.records import Verdict, Verified
from gemm_tuner.kernels.check import Trial, Unstable, wait_for
from gemm_tuner.kernels.compare import Comparison, Groups, unwritten


class Jury:
    """One case. What most configurations compute is taken as right."""

    def __init__(self, trial: Trial) -> None:
        self._trial = trial
        self._groups = Groups()
        self._verdicts: dict[str, Verdict] = {}

    def hear(self, script: ModuleType, name: str) -> None:
        """Runs one configuration, until the GPU is through with it. Raises what its launch raises."""
        trial = self._trial
        try:
            outputs = trial.outputs(script, name)
            wait_for(outputs)
        except Unstable as error:
            self._verdicts[name] = trial.unstable(name, error)
            return
        found = unwritten(outputs)
        if found is None:
            found = self._groups.join(name, outputs, trial.spec.check)
        self._verdicts[name] = trial.verdict(name, found, Verified.AGREED if found.ok else None)

    def verdicts(self) -> dict[str, Verdict]:
        """Of all that were heard, by name. One that is alone was compared with nothing: its verdict's ``how`` is FALSE.
        Where no group is the largest, all are wrong."""
        if len(self._verdicts) == 1:
            return {
                name: self._trial.verdict(name, Comparison(), Verified.FALSE) if one.ok else one
                for name, one in self._verdicts.items()
            }
        largest = self._groups.largest()
        for group in self._groups.groups:
            if group is not largest:
                fault = self._groups.fault(group)
                verdicts = {name: self._trial.verdict(name, fault, Verified.AGREED) for name in group.names}
                self._verdicts.update(verdicts)
        return self._verdicts

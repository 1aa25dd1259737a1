"""Configurations of a kernel without a reference, compared with each other. Needs torch."""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType
from typing import Any

from gemm_tuner.core.records import Verdict, Verified
from gemm_tuner.kernels.check import Trial, Unstable
from gemm_tuner.kernels.compare import Comparison, compared

WRONG = float("inf")


@dataclass
class _Group:
    """Configurations whose outputs agree with those of the first of them."""

    outputs: dict[str, Any]
    names: list[str]


class Jury:
    """One case. What most configurations compute is taken as right; of a group only the first one's outputs are kept in
    memory."""

    def __init__(self, trial: Trial) -> None:
        self._trial = trial
        self._groups: list[_Group] = []
        self._verdicts: dict[str, Verdict] = {}

    def hear(self, script: ModuleType, name: str) -> None:
        """Runs one configuration. Raises what its launch raises."""
        trial = self._trial
        try:
            outputs = trial.outputs(script, name)
        except Unstable as error:
            self._verdicts[name] = trial.unstable(name, error)
            return
        for label, value in outputs.items():
            if value.is_floating_point() and bool(value.isnan().any()):
                text = f"{int(value.isnan().sum())} elements of {label} are NaN, which they were before the call"
                self._verdicts[name] = trial.verdict(name, Comparison(WRONG, WRONG, message=text))
                return
        for group in self._groups:
            found = compared(trial.spec.check, outputs, group.outputs)
            if found.ok:
                group.names.append(name)
                self._verdicts[name] = trial.verdict(name, found, Verified.AGREED)
                return
        self._groups.append(_Group(outputs, [name]))
        self._verdicts[name] = trial.verdict(name, Comparison(), Verified.AGREED)

    def verdicts(self) -> dict[str, Verdict]:
        """Of all that were heard, by name. One that is alone was compared with nothing: its verdict's ``how`` is FALSE.
        Where no group is the largest, all are wrong."""
        groups = sorted(self._groups, key=lambda group: len(group.names), reverse=True)
        if len(self._verdicts) == 1:
            return {
                name: self._trial.verdict(name, Comparison(), Verified.FALSE) if one.ok else one
                for name, one in self._verdicts.items()
            }
        sizes = [len(group.names) for group in groups]
        decided = sizes[:1] > [1] and sizes[1:2] != sizes[:1]
        for group in groups[1:] if decided else groups:
            for name in group.names:
                self._verdicts[name] = self._trial.verdict(name, self._unlike(group, groups[0]), Verified.AGREED)
        return self._verdicts

    def _unlike(self, group: _Group, largest: _Group) -> Comparison:
        """Why a group is not the one that counts. That it is not is known: where memory is too small to say how far it
        is off, the verdict stays, and no other one is lost."""
        import torch

        total = len(self._verdicts)
        if group is largest or len(group.names) == len(largest.names):
            text = f"{len(group.names)} of {total} configurations agree, and no group is the largest: give a reference"
            return Comparison(WRONG, WRONG, message=text)
        try:
            found = compared(self._trial.spec.check, group.outputs, largest.outputs)
        except (MemoryError, torch.OutOfMemoryError):
            text = f"not what {len(largest.names)} of {total} configurations compute; out of memory to say where"
            return Comparison(WRONG, WRONG, message=text)
        text = f"{found.message}, as {len(largest.names)} of {total} configurations have it"
        return Comparison(found.over, found.max_abs_error, found.at, text)

"""The guided search: the model's best and a spread, then what a regression learned from them, then a polish."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gemm_tuner.records import Device
from gemm_tuner.search import learned
from gemm_tuner.search.view import Asked, Proposals, SizeView, not_asked


@dataclass(frozen=True, slots=True)
class Guided:
    """Three rounds. Each is a pure function of the rounds before it, so that a killed run goes on where it was."""

    seed: int = 0
    jobs: int = 1
    first_share: float = 0.03
    learned_share: float = 0.025
    polish_share: float = 0.02
    least: int = 8
    name: str = "guided"

    def propose(self, sizes: Sequence[SizeView], device: Device) -> Proposals:
        seen: dict[SizeView, set[str]] = {size: set() for size in sizes}
        for number in range(3):
            then = [size.only(seen[size]) for size in sizes]
            wanted = self._round(number, then, device)
            asked = {size: wanted.get(size.problem, []) for size in sizes}
            left = {size.problem: [n for n in names if not size.knows(n)] for size, names in asked.items()}
            if any(left.values()):
                return {problem: names for problem, names in left.items() if names}
            for size, names in asked.items():
                seen[size].update(names)
        return {}

    def likely_next(self, sizes: Sequence[SizeView], device: Device, asked: Asked, count: int) -> Proposals:
        known = any(size.timed_us for size in sizes)
        ranked = _ranked(sizes, device, self.seed, self.jobs) if known else [size.by_prediction() for size in sizes]
        return {s.problem: not_asked(s, names, asked)[:count] for s, names in zip(sizes, ranked, strict=True)}

    def _round(self, number: int, sizes: Sequence[SizeView], device: Device) -> Proposals:
        share = (self.first_share, self.learned_share, self.polish_share)[number]
        if number == 0:
            ranked = [size.by_prediction() for size in sizes]
        else:
            ranked = _ranked(sizes, device, self.seed, self.jobs)
        return {
            size.problem: not_asked(size, names, {})[: max(self.least, int(share * len(names)))]
            for size, names in zip(sizes, ranked, strict=True)
        }


def _ranked(sizes: Sequence[SizeView], device: Device, seed: int, jobs: int) -> list[list[str]]:
    found = learned.estimates(sizes, device, seed=seed, jobs=jobs)
    return [
        [str(name) for name in size.candidates.index[np.argsort(estimate.log_us, kind="stable")]]
        for size, estimate in zip(sizes, found, strict=True)
    ]

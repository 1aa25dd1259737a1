"""What came of a round of screening, or of a part of one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from gemm_tuner.core.records import Problem, Timing
from gemm_tuner.measure.parse_run import Key
from gemm_tuner.space.size_state import Named, SizeState


@dataclass
class Screened:
    """The timings of a round.

    duplicates: for each size, name -> name of the configuration with the same machine code that was timed instead.
    homes:      the GPU of each size when the round began.
    """

    compiled: Named
    duplicates: list[tuple[SizeState, dict[str, str]]]
    homes: dict[Problem, int]
    timings: dict[Key, Timing] = field(default_factory=dict)

    @classmethod
    def of_parts(cls, parts: Sequence[Screened]) -> Screened:
        """The timings of a round from those of its parts, in their order."""
        return cls(
            [one for part in parts for one in part.compiled],
            [one for part in parts for one in part.duplicates],
            {problem: gpu for part in reversed(parts) for problem, gpu in part.homes.items()},
            {key: timing for part in parts for key, timing in part.timings.items()},
        )

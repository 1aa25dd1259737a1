"""Calls as the launcher's journal says them, and as a profiler's trace shows them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from gemm_tuner.core.markers import BEGIN_SYMBOL, END_SYMBOL, FLUSH_SYMBOL


@dataclass(frozen=True, slots=True)
class Call:
    """One call in the launcher's journal: its number, configuration and kernels in order.

    flushes: number of flush kernels before this call; None where the journal does not say.
    queued:  the GPU had work until all kernels of the call were in its queue.
    round:   number of the round of finals; None in screening.
    """

    number: int
    work: int
    name: str
    symbols: tuple[str, ...]
    warm: bool
    flushes: int | None = None
    round: int | None = None
    queued: bool = False

    @property
    def rows(self) -> tuple[str, ...]:
        """The names of the rows that the call is known to leave in a trace."""
        return (FLUSH_SYMBOL,) * (self.flushes or 0) + (self.symbols or (BEGIN_SYMBOL, END_SYMBOL))


class Row(NamedTuple):
    """One kernel of a trace."""

    name: str
    us: float
    start_us: float


@dataclass
class SeenCall:
    """One call as the trace shows it."""

    rows: list[Row] = field(default_factory=list)

    @property
    def symbols(self) -> list[str]:
        return [row.name for row in self.rows]

    @property
    def summed_us(self) -> float:
        """The times of its kernels, added up."""
        return sum(row.us for row in self.rows)

    @property
    def span_us(self) -> float:
        """From the first start to the last end."""
        return max(row.start_us + row.us for row in self.rows) - min(row.start_us for row in self.rows)

    def time_us(self, *, by_span: bool) -> float:
        """One kernel's own time; of several the span where no wait for the host can be part of it, else the sum."""
        return self.span_us if by_span and len(self.rows) > 1 else self.summed_us

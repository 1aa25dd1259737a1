"""Records of calls: as in the launcher's journal, and as observed in a profiler's trace."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from gemm_tuner.core.markers import BEGIN_SYMBOL, END_SYMBOL, FLUSH_SYMBOL


@dataclass(frozen=True, slots=True)
class Call:
    """One call in the launcher's journal: its number, configuration, and kernels in order.

    flushes: number of flush kernels before this call; None if the journal does not have it.
    queued:  the GPU was busy until all kernels of the call were in its queue.
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
        """The kernel names of the rows that the call must leave in a trace."""
        return (FLUSH_SYMBOL,) * (self.flushes or 0) + (self.symbols or (BEGIN_SYMBOL, END_SYMBOL))


class Row(NamedTuple):
    """One kernel in a trace."""

    name: str
    us: float
    start_us: float


@dataclass
class SeenCall:
    """One call as observed in a trace."""

    rows: list[Row] = field(default_factory=list)

    @property
    def symbols(self) -> list[str]:
        return [row.name for row in self.rows]

    @property
    def summed_us(self) -> float:
        """The sum of the times of its kernels."""
        return sum(row.us for row in self.rows)

    @property
    def span_us(self) -> float:
        """The time from the first start to the last end."""
        return max(row.start_us + row.us for row in self.rows) - min(row.start_us for row in self.rows)

    def time_us(self, *, by_span: bool) -> float:
        """The time of the call: for several kernels their span if ``by_span`` (it cannot include waiting for the host),
        else their sum."""
        return self.span_us if by_span and len(self.rows) > 1 else self.summed_us

    def own_us(self, symbols: Iterable[str]) -> list[float]:
        """The times of its kernels in the order of its launches, of which several may be of one kernel; in that of the
        trace for the vendor library, whose launches are unknown."""
        left: dict[str, list[float]] = {}
        for row in self.rows:
            left.setdefault(row.name, []).append(row.us)
        return [left[symbol].pop(0) for symbol in symbols] or [row.us for row in self.rows]

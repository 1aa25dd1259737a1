"""Joins a profiler's trace with the launcher's journal: which time belongs to which call.

The join is by exact kernel name and order of start. A configuration whose calls in the trace are
not those of the journal, in number or in kernels, has no time: it is missing in the trace. Joined by
order, the calls of all that share a kernel are counted together: what one loses costs them all.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from gemm_tuner.launcher.plan import BEGIN_SYMBOL, END_SYMBOL, FLUSH_SYMBOL, VENDOR

SUPPORT_SYMBOLS = frozenset({BEGIN_SYMBOL, END_SYMBOL, FLUSH_SYMBOL})


@dataclass(frozen=True, slots=True)
class Call:
    """One GEMM call that the launcher journalled: its number, configuration and kernels in order."""

    number: int
    work: int
    name: str
    symbols: tuple[str, ...]
    warm: bool


@dataclass
class SeenCall:
    """One call as the trace shows it."""

    symbols: list[str] = field(default_factory=list)
    duration_us: float = 0.0


@dataclass(frozen=True, slots=True)
class Joined:
    """samples_us: by (work, configuration), the timed calls in order. missing: why the others have none."""

    samples_us: dict[tuple[int, str], tuple[float, ...]]
    missing: dict[tuple[int, str], str]


def calls_of(journal: Iterable[dict[str, Any]]) -> list[Call]:
    """The calls of a journal in order."""
    return [Call(e["n"], e["work"], e["name"], tuple(e["symbols"]), e["warm"]) for e in journal if e["event"] == "call"]


def join(trace: pd.DataFrame, calls: list[Call], *, by_scope: bool) -> Joined:
    """Times of all calls. ``trace`` has the profilers' TRACE_COLUMNS, sorted by start.

    Rows of other processes are left out. Where several processes ran the kernels of the journal nobody can say
    whose times they are, and no call has one.
    """
    ours = own_processes(trace, calls)
    if len(ours) > 1:
        reason = f"the trace has these kernels in {len(ours)} processes: {', '.join(ours)}"
        return Joined({}, {(call.work, call.name): reason for call in calls})
    own = trace[trace["process"].isin(ours)] if ours else trace
    return join_by_scope(own, calls) if by_scope else join_by_order(own, calls)


def own_processes(trace: pd.DataFrame, calls: list[Call]) -> list[str]:
    """The processes that ran a kernel of the journal or one of the measurement's own, in the order of their text."""
    known = SUPPORT_SYMBOLS.union(*(call.symbols for call in calls))
    return sorted(trace.loc[trace["kernel_name"].isin(known), "process"].unique())


def join_by_scope(trace: pd.DataFrame, calls: list[Call]) -> Joined:
    """For a profiler that tells calls apart itself: call n ran in scope ``Ln``."""
    seen: dict[str, SeenCall] = defaultdict(SeenCall)
    for name, duration_ns, scope in zip(trace["kernel_name"], trace["duration_ns"], trace["scope"], strict=True):
        if scope and name not in SUPPORT_SYMBOLS:
            seen[scope].symbols.append(name)
            seen[scope].duration_us += duration_ns / 1e3
    pairs = [(call, seen.get(f"L{call.number}")) for call in calls]
    wrong: dict[tuple[int, str], str] = {}
    for call, found in pairs:
        if found is None or (call.symbols and Counter(found.symbols) != Counter(call.symbols)):
            wrong[call.work, call.name] = f"call {call.number} shows {found.symbols if found else 'no kernel'}"
    return _collect(pairs, wrong)


def join_by_order(trace: pd.DataFrame, calls: list[Call]) -> Joined:
    """For a profiler that lists kernels by start: the nth call of a kernel is the nth in the journal."""
    tails: dict[str, set[str]] = {}
    for call in calls:
        if call.symbols:
            tails.setdefault(call.symbols[0], set()).update(call.symbols[1:])
    seen = observed_calls(zip(trace["kernel_name"], trace["duration_ns"], strict=True), tails)
    expected: dict[str, list[Call]] = defaultdict(list)
    for call in calls:
        expected[call.symbols[0] if call.symbols else VENDOR].append(call)
    pairs: list[tuple[Call, SeenCall | None]] = []
    wrong: dict[tuple[int, str], str] = {}
    for head, wanted in expected.items():
        found = seen.get(head, [])
        fits = len(found) == len(wanted) and all(
            not call.symbols or tuple(one.symbols) == call.symbols for call, one in zip(wanted, found, strict=True)
        )
        if fits:
            pairs += zip(wanted, found, strict=True)
        else:
            reason = f"the trace has {len(found)} calls of {head}, the journal {len(wanted)}"
            if len(found) == len(wanted):
                reason = f"a call of {head} shows other kernels than the journal"
            sharing = len({(call.work, call.name) for call in wanted})
            if sharing > 1:
                reason += f", which costs all {sharing} configurations of this start that share it their times"
            for call in wanted:
                wrong[call.work, call.name] = reason
                pairs.append((call, None))
    pairs.sort(key=lambda pair: pair[0].number)
    return _collect(pairs, wrong)


def observed_calls(rows: Iterable[tuple[str, float]], tails: dict[str, set[str]]) -> dict[str, list[SeenCall]]:
    """The calls in a trace, by the name of their first kernel (the vendor's by VENDOR).

    A call is a known first kernel and those behind it that ``tails`` gives it, or all that stands between
    the two marker kernels. A flush ends whatever came before it. Kernels that nobody knows count nowhere else.
    A bracket that a flush or a known first kernel breaks has lost its end, and counts for nothing.
    """
    seen: dict[str, list[SeenCall]] = defaultdict(list)
    current: SeenCall | None = None
    vendor: SeenCall | None = None
    for name, duration_ns in rows:
        if name == BEGIN_SYMBOL:
            vendor, current = SeenCall(), None
        elif name == END_SYMBOL:
            if vendor is not None and vendor.symbols:
                seen[VENDOR].append(vendor)
            vendor = None
        elif name == FLUSH_SYMBOL:
            vendor = current = None
        elif name in tails:
            vendor, current = None, SeenCall([name], duration_ns / 1e3)
            seen[name].append(current)
        elif vendor is not None:
            vendor.symbols.append(name)
            vendor.duration_us += duration_ns / 1e3
        elif current is not None and name in tails[current.symbols[0]]:
            current.symbols.append(name)
            current.duration_us += duration_ns / 1e3
    return seen


def _collect(pairs: list[tuple[Call, SeenCall | None]], wrong: dict[tuple[int, str], str]) -> Joined:
    samples: dict[tuple[int, str], list[float]] = defaultdict(list)
    for call, found in pairs:
        if found is not None and found.duration_us <= 0:
            wrong.setdefault((call.work, call.name), f"call {call.number} shows a time of 0")
    for call, found in pairs:
        key = (call.work, call.name)
        if found is not None and key not in wrong and not call.warm:
            samples[key].append(found.duration_us)
    return Joined({key: tuple(times) for key, times in samples.items()}, wrong)

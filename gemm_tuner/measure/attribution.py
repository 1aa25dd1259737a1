"""Joins a profiler's trace with the launcher's journal, to find which time belongs to which call.

The join is by exact kernel name and order of start. Profilers sometimes drop rows, and a shifted assignment would give
configurations each other's times. So if rows are missing, a row is assigned to a call only if no other assignment in
order is possible (``certain_rows``). The flush kernel before each timed call is part of the order, which makes the
assignment unambiguous again soon after a loss.

A trace with rows that the journal does not explain is joined kernel by kernel. If the calls of a kernel then differ
from the journal in number or in kernels, all configurations that share this kernel have no time.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from statistics import median
from typing import TYPE_CHECKING

from gemm_tuner.core.markers import BEGIN_SYMBOL, END_SYMBOL, FLUSH_SYMBOL
from gemm_tuner.launch.journal import Begin, Called, Event, Round
from gemm_tuner.launch.plan import VENDOR
from gemm_tuner.measure.calls import Call, Row, SeenCall

if TYPE_CHECKING:
    import pandas as pd

SUPPORT_SYMBOLS = frozenset({BEGIN_SYMBOL, END_SYMBOL, FLUSH_SYMBOL})


@dataclass(frozen=True, slots=True)
class Joined:
    """samples_us: by (work, configuration), times of the timed calls in order, microseconds. missing: the reason why a
    configuration has none. kernels_us: of calls of several kernels, the median own time of each, in their order; for
    the vendor library as far as its calls are of as many kernels.
    numbers: of the calls of samples_us."""

    samples_us: dict[tuple[int, str], tuple[float, ...]]
    missing: dict[tuple[int, str], str]
    kernels_us: dict[tuple[int, str], tuple[float, ...]] = field(default_factory=dict)
    numbers: dict[tuple[int, str], tuple[int, ...]] = field(default_factory=dict)


def calls_of(journal: Iterable[Event]) -> list[Call]:
    """The calls in a journal, in order."""
    calls: list[Call] = []
    at: int | None = None
    for event in journal:
        if isinstance(event, (Begin, Round)):
            at = event.number if isinstance(event, Round) else None
        elif isinstance(event, Called):
            of = event.n, event.work, event.name, event.symbols, event.warm
            calls.append(Call(*of, event.flushes, at, event.queued))
    return calls


def join(trace: pd.DataFrame, calls: list[Call], *, by_scope: bool, real_time: bool = False) -> Joined:
    """The times of all calls. trace: a table with TRACE_COLUMNS, sorted by start.

    real_time: the profiler does not delay kernels, so the time of a call of several kernels is their span.

    Rows of other processes are ignored. If several processes ran kernels of the journal, the times are ambiguous, and
    no call gets one.
    """
    calls = calls if real_time else [replace(call, queued=False) for call in calls]
    ours = own_processes(trace, calls)
    if len(ours) > 1:
        reason = f"the trace has these kernels in {len(ours)} processes: {', '.join(ours)}"
        return Joined({}, {(call.work, call.name): reason for call in calls})
    own = trace[trace["process"].isin(ours)] if ours else trace
    return join_by_scope(own, calls) if by_scope else join_by_order(own, calls)


def own_processes(trace: pd.DataFrame, calls: list[Call]) -> list[str]:
    """The processes that ran a kernel of the journal or of the measurement itself, sorted as text."""
    known = SUPPORT_SYMBOLS.union(*(call.symbols for call in calls))
    return sorted(trace.loc[trace["kernel_name"].isin(known), "process"].unique())


def join_by_scope(trace: pd.DataFrame, calls: list[Call]) -> Joined:
    """Joins a trace with scopes: call n ran in scope ``Ln``."""
    seen: dict[str, SeenCall] = defaultdict(SeenCall)
    for row, scope in zip(rows_of(trace), trace["scope"], strict=True):
        if scope and row.name not in SUPPORT_SYMBOLS:
            seen[scope].rows.append(row)
    pairs = [(call, seen.get(f"L{call.number}")) for call in calls]
    wrong: dict[tuple[int, str], str] = {}
    for call, found in pairs:
        if found is None or (call.symbols and Counter(found.symbols) != Counter(call.symbols)):
            wrong[call.work, call.name] = f"call {call.number} shows {found.symbols if found else 'no kernel'}"
    return _collect(pairs, wrong)


def join_by_order(trace: pd.DataFrame, calls: list[Call]) -> Joined:
    """Joins a trace without scopes by the order of its rows, which are sorted by start."""
    rows = rows_of(trace)
    found = found_calls(rows, calls)
    if found is None:
        return join_by_kernel(rows, calls)
    seen, wanted = Counter(row.name for row in rows), Counter(head_of(call) for call in calls)
    reasons = {}
    for call in calls:
        head = head_of(call)
        if call.number not in found:
            reasons[call.number] = f"the trace has {seen[head]} calls of {head}, the journal {wanted[head]}"
            if seen[head] == wanted[head]:
                reasons[call.number] = f"call {call.number} shows other kernels than the journal"
    return _collect([(call, found.get(call.number)) for call in calls], {}, reasons)


def rows_of(trace: pd.DataFrame) -> list[Row]:
    """The kernels of a trace, in order."""
    columns = trace["kernel_name"], trace["duration_ns"] / 1e3, trace["start_ns"] / 1e3
    return [*map(Row, *(column.tolist() for column in columns))]


def head_of(call: Call) -> str:
    """The kernel name in the first row of a call."""
    return call.symbols[0] if call.symbols else BEGIN_SYMBOL


def found_calls(rows: list[Row], calls: list[Call]) -> dict[int, SeenCall] | None:
    """The calls whose kernels are all identified in a trace, by number.

    Returns None for a trace with rows of known kernels that the calls do not explain.
    """
    flushed = all(call.flushes is not None for call in calls)
    expected = [(name, call) for call in calls for name in call.rows if flushed or name != FLUSH_SYMBOL]
    known = {name for name, _ in expected}
    places = [at for at, row in enumerate(rows) if row.name in known]
    certain = certain_rows([rows[at].name for at in places], [name for name, _ in expected])
    if certain is None:
        return None
    at_row: dict[int, dict[int, int]] = defaultdict(dict)
    for seen, place in certain.items():
        call = expected[place][1]
        if rows[places[seen]].name != FLUSH_SYMBOL:
            at_row[call.number][place] = places[seen]
    found: dict[int, SeenCall] = {}
    for call in calls:
        at = sorted(at_row[call.number].values())
        if call.symbols and len(at) == len(call.symbols):
            found[call.number] = SeenCall([rows[one] for one in at])
        elif not call.symbols and len(at) == 2 and at[1] - at[0] > 1:
            found[call.number] = SeenCall(rows[at[0] + 1 : at[1]])
    return without_partial(found, calls)


def certain_rows(seen: list[str], expected: list[str]) -> dict[int, int] | None:
    """Maps indices in ``seen`` to indices in ``expected`` for the rows with only one possible assignment.

    ``seen`` is ``expected`` with some rows lost; None if it is not a subsequence. Greedy matching from the front gives
    each row its earliest possible place, and from the back its latest. If both are equal, the assignment is certain.
    """
    if seen == expected:  # nothing lost
        return {at: at for at in range(len(seen))}
    first = _earliest(seen, expected)
    if first is None:
        return None
    last = [len(expected) - 1 - place for place in reversed(_earliest(seen[::-1], expected[::-1]) or [])]
    return {at: place for at, (place, other) in enumerate(zip(first, last, strict=True)) if place == other}


def _earliest(seen: list[str], expected: list[str]) -> list[int] | None:
    places: list[int] = []
    at = 0
    for name in seen:
        while at < len(expected) and expected[at] != name:
            at += 1
        if at == len(expected):
            return None
        places.append(at)
        at += 1
    return places


def without_partial(found: dict[int, SeenCall], calls: list[Call]) -> dict[int, SeenCall]:
    """``found`` without calls of the vendor library that lost rows.

    The number of its kernels is unknown. A call counts as incomplete if another call of the same size has the same
    kernels and more.
    """
    variants: dict[int, set[tuple[str, ...]]] = defaultdict(set)
    of_vendor = {call.number: call.work for call in calls if not call.symbols and call.number in found}
    for number, work in of_vendor.items():
        variants[work].add(tuple(found[number].symbols))
    partial = {
        (work, one)
        for work, known in variants.items()
        for one in known
        if any(len(one) < len(other) and not Counter(one) - Counter(other) for other in known)
    }
    return {n: call for n, call in found.items() if (of_vendor.get(n), tuple(call.symbols)) not in partial}


def join_by_kernel(rows: list[Row], calls: list[Call]) -> Joined:
    """Joins kernel by kernel: if the counts agree, the nth call of a kernel in the trace is the nth in the journal."""
    tails: dict[str, set[str]] = {}
    for call in calls:
        if call.symbols:
            tails.setdefault(call.symbols[0], set()).update(call.symbols[1:])
    seen = observed_calls(rows, tails)
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


def observed_calls(rows: Iterable[Row], tails: dict[str, set[str]]) -> dict[str, list[SeenCall]]:
    """The calls in a trace, by the name of their first kernel (VENDOR for the vendor library).

    A call is a known first kernel and the following kernels that ``tails`` lists for it, or everything between two
    marker kernels. A flush ends a call. Other unknown kernels are ignored. A begin marker that is followed by a flush
    or a known first kernel has lost its end marker and is ignored.
    """
    seen: dict[str, list[SeenCall]] = defaultdict(list)
    current: SeenCall | None = None
    vendor: SeenCall | None = None
    for row in rows:
        name = row.name
        if name == BEGIN_SYMBOL:
            vendor, current = SeenCall(), None
        elif name == END_SYMBOL:
            if vendor is not None and vendor.symbols:
                seen[VENDOR].append(vendor)
            vendor = None
        elif name == FLUSH_SYMBOL:
            vendor = current = None
        elif name in tails:
            vendor, current = None, SeenCall([row])
            seen[name].append(current)
        elif vendor is not None:
            vendor.rows.append(row)
        elif current is not None and name in tails[current.symbols[0]]:
            current.rows.append(row)
    return seen


def _collect(
    pairs: list[tuple[Call, SeenCall | None]], wrong: dict[tuple[int, str], str], lost: dict[int, str] | None = None
) -> Joined:
    """The times of all pairs of calls, except those of ``wrong`` configurations.

    wrong: (work, configuration) -> reason. lost: number of a call -> why it has no time.
    A configuration that lost half of its timed calls gets no time. Otherwise a loss costs only that call; in finals it
    costs the whole round of the size, because samples are compared round by round.
    """
    timed = Counter((call.work, call.name) for call, _ in pairs if not call.warm)
    gone = [call for call, _ in pairs if not call.warm and call.number in (lost or {})]
    for key, count in Counter((call.work, call.name) for call in gone).items():
        if 2 * count >= timed[key]:
            wrong[key] = next((lost or {})[call.number] for call in gone if (call.work, call.name) == key)
    for call, found in pairs:
        if found is not None and found.summed_us <= 0:
            wrong.setdefault((call.work, call.name), f"call {call.number} shows a time of 0")
    rounds = {
        (call.work, call.round) for call in gone if (call.work, call.name) not in wrong and call.round is not None
    }
    samples: dict[tuple[int, str], list[float]] = defaultdict(list)
    kernels: dict[tuple[int, str], list[list[float]]] = defaultdict(list)
    numbers: dict[tuple[int, str], list[int]] = defaultdict(list)
    for call, found in pairs:
        key = (call.work, call.name)
        if found is not None and key not in wrong and not call.warm and (call.work, call.round) not in rounds:
            samples[key].append(found.time_us(by_span=call.queued))
            numbers[key].append(call.number)
            if len(found.rows) > 1:
                kernels[key].append(found.own_us(call.symbols))
    alike = {key: calls for key, calls in kernels.items() if len({*map(len, calls)}) == 1}
    medians = {key: tuple(map(median, zip(*calls, strict=True))) for key, calls in alike.items()}
    ran = {key: tuple(of) for key, of in numbers.items()}
    return Joined({key: tuple(times) for key, times in samples.items()}, wrong, medians, ran)

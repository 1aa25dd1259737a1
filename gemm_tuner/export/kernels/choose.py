"""Chooses the configuration of each key: for a single case its own; for several the one with the least total time."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass

from gemm_tuner.core.errors import UserError
from gemm_tuner.core.plain_config import PlainConfig
from gemm_tuner.core.records import Status, Verified
from gemm_tuner.export.kernels.rows import TunedCase
from gemm_tuner.export.offers import LeftOut
from gemm_tuner.kernels.kernel_spec import KernelSpec
from gemm_tuner.kernels.keys import Key, key_of, text_of
from gemm_tuner.kernels.workload import configs_of
from gemm_tuner.store.run_record import positive, read_table

# Number of a key's best candidates that are checked at further cases.
MOST_CHECKED = 4
ON_A_GPU = (Verified.TRUE, Verified.AGREED)
WEAKEST = (Verified.FALSE, Verified.AGREED, Verified.INTERPRETED)

# Checks a configuration at cases; returns how it was checked, or why it is not correct.
Check = Callable[[Sequence[TunedCase], PlainConfig], Verified | str]


@dataclass(frozen=True, slots=True)
class Entry:
    """verified: the weakest of its cases' checks. note: how it was chosen among several cases; "" for one case."""

    key: Key
    config: PlainConfig
    cases: tuple[TunedCase, ...]
    verified: Verified
    note: str = ""

    @property
    def params(self) -> dict[str, object]:
        return self.config.options()

    @property
    def weakness(self) -> str:
        """Why it replaces nothing that may have been timed and checked on a GPU; "" if it was itself."""
        if any(case.source == "predicted" for case in self.cases):
            return "a prediction"
        return "" if self.verified in ON_A_GPU else "what no GPU checked"

    def yields_to(self, file: str, key: str, there: object, ours: object) -> list[LeftOut]:
        """Why the entry does not replace what a file has at its key, of which nothing is known: where no GPU timed it,
        that may be faster, and where none checked it, that may be right. Empty where it does.

        ours: what would be written.
        """
        if there in (None, ours) or not self.weakness:
            return []
        return self.left_out(f"{file} has another entry for {key}, which {self.weakness} does not replace")

    def left_out(self, why: str) -> list[LeftOut]:
        """Its cases, as left out in favour of what is there."""
        return [LeftOut(case.problem.key, self.config.name, f"{why}; --overwrite does") for case in self.cases]


@dataclass(frozen=True, slots=True)
class TunedKernel:
    """A kernel and its entries, in the order of the results file."""

    spec: KernelSpec
    entries: tuple[Entry, ...]


def chosen(cases: Mapping[str, Sequence[TunedCase]], check: Check) -> tuple[tuple[TunedKernel, ...], list[LeftOut]]:
    """(the entries of every kernel, the cases without an entry)."""
    kernels, left_out = [], []
    for of_kernel in cases.values():
        spec, entries = of_kernel[0].spec, []
        by_key: dict[Key, list[TunedCase]] = {}
        for case in of_kernel:
            by_key.setdefault(key_of(spec, case.problem.case), []).append(case)
        for key, sharing in by_key.items():
            entry = _entry(key, sharing, check)
            if isinstance(entry, Entry):
                entries.append(entry)
            else:
                left_out += [
                    LeftOut(case.problem.key, case.config.name, f"{text_of(key)}: {entry}") for case in sharing
                ]
        if entries:
            kernels.append(TunedKernel(spec, tuple(entries)))
    return tuple(kernels), left_out


def _entry(key: Key, cases: Sequence[TunedCase], check: Check) -> Entry | str:
    """The entry of a key, or why it has none."""
    names = {case.config.name for case in cases}
    if len(names) == 1:
        return Entry(key, cases[0].config, tuple(cases), weakest(case.verified for case in cases))
    try:
        configs = _configs(cases)
        totals = _totals(cases, configs)
    except UserError as error:
        return f"its {len(cases)} cases were tuned apart: {error.one_line()}"
    if not totals:
        return f"no configuration was timed at all of its {len(cases)} cases; --search full times all"
    own = sum(case.us for case in cases)
    why = ""
    for name in sorted(totals, key=lambda one: (totals[one], one))[:MOST_CHECKED]:
        config = configs[name]
        others = [case for case in cases if case.config.name != name]
        how = check(others, config) if others else Verified.TRUE
        if not isinstance(how, Verified):
            why = why or how
            continue
        loss = f"{100 * (totals[name] / own - 1):.1f} % over the sum of their own" if own else "of unknown times"
        note = f"the least total of {len(cases)} cases: {totals[name]:.2f} us, {loss}"
        mine = [case.verified for case in cases if case.config.name == name]
        return Entry(key, config, tuple(cases), weakest([how, *mine]), note)
    return f"of the best {min(MOST_CHECKED, len(totals))} by the total of {len(cases)} cases none can be taken: {why}"


def weakest(found: Iterable[Verified]) -> Verified:
    every = set(found)
    return next((one for one in WEAKEST if one in every), Verified.TRUE)


def _configs(cases: Sequence[TunedCase]) -> dict[str, PlainConfig]:
    """The configurations with known values, by name: those of the spec's parameters, and those that cases chose. Tables
    may name others (a host function's default, or configurations of --update), whose values are not in the tables."""
    known = (*configs_of(cases[0].spec), *(case.config for case in cases))
    return {one.name: one for one in known if isinstance(one, PlainConfig)}


def _totals(cases: Sequence[TunedCase], known: Container[str]) -> dict[str, float]:
    """The sum of the times over all cases, by name, for known configurations with a time at each case."""
    tables = [_times(case) for case in cases]
    shared = set.intersection(*(set(table) for table in tables))
    return {name: sum(table[name] for table in tables) for name in shared if name in known}


def _times(case: TunedCase) -> dict[str, float]:
    """The times of a case by name, microseconds. Clocks differ between screening and finals, so a time is scaled by
    that of the chosen configuration in the same stage."""
    table = read_table(case.folder, case.problem.key)
    rows = {str(row["name"]): row for row in table[table["status"] == Status.OK.value].to_dict("records")}
    mine = rows.get(case.config.name)
    if mine is None:
        raise UserError(f"the table of {case.problem.key} is of another run", where=str(case.folder))
    times = {}
    for name, row in rows.items():
        for column in ("predicted_us",) if case.source == "predicted" else ("finals_us", "screen_us"):
            theirs, ours = positive(row.get(column)), positive(mine.get(column))
            if theirs and ours:
                times[name] = case.us * theirs / ours
                break
    return times

"""Finishes sizes: writes the chosen configuration, or the reason for none, to the store, the results file and the
state."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, replace

from gemm_tuner.consumers.server import Server
from gemm_tuner.core.records import Device, Status, Timing, Verdict
from gemm_tuner.core.workload import workload_of
from gemm_tuner.decide import choose
from gemm_tuner.decide.sheet import BESIDE, summed_us
from gemm_tuner.launch.plan import VENDOR
from gemm_tuner.pipeline import rivals, serving, substitutes
from gemm_tuner.pipeline.baseline_configs import BaselineConfigs
from gemm_tuner.pipeline.finals import Finals
from gemm_tuner.pipeline.finals_work import best_first
from gemm_tuner.pipeline.run_log import RunLog
from gemm_tuner.pipeline.run_results import RunResults
from gemm_tuner.space.size_state import SizeState
from gemm_tuner.store.store import Store


@dataclass(frozen=True)
class SizeFinisher:
    """Finishes the sizes of a run. source: "measured" or "replayed"."""

    device: Device
    source: str
    store: Store
    results: RunResults
    log: RunLog
    older: BaselineConfigs
    servers: Sequence[Server]
    finals: Finals

    def finish(self, state: SizeState, name: str | None, verdicts: list[Verdict], reason: str = "") -> None:
        """Finishes a size with the configuration ``name``, which its check found correct; if None, with the reason."""
        problem, store, judgement = state.problem, self.store, serving.judgement(self.servers, state)
        store.keep_state(problem, state.rows)
        if name is None:
            store.record_outcome(problem, "", reason)
            self.results.record(problem, None, reason, judgement)
            return
        self.finals.publish_for(problem, name)
        ranked = self.finals.ranked(state)
        sound = choose.without(ranked, state.found_wrong())
        overruled = {**state.passed_over(ranked.order, name), **self.finals.overruled(state, name)}
        ties = self.finals.rankings[problem].ties if problem in self.finals.rankings else frozenset()
        store.record_outcome(problem, name)
        self.older.note_chosen(state, name, self.log)
        chosen = choose.measured_choice(sound, name, state.kept[name], verdicts, self.device, self.source, ties)
        default = self.older.defaults.get(problem)
        beside, timings = VENDOR, self.finals.timings.get(problem, ())
        if default is not None and default.name in ranked.times:
            beside = default.name
            chosen = replace(chosen, vendor_us=ranked.times[default.name].us)
        sums = [summed_us(timings, one, self.finals.published_by(problem, one)) for one in (name, beside)]
        chosen = replace(chosen, summed_us=sums[0], vendor_summed_us=sums[1])
        calls = calls_us(timings, state.own)
        noted = workload_of(problem.kind).found_in_finals(problem, calls, name)
        us, published = finals_us(self.finals, state), self.results.published.get(problem)
        served = serving.served_choices(self.servers, state, us, store.verdicts, published=published)
        substitute = substitutes.substitute(state, name, us, store.verdicts)
        noted = {**noted, **rivals.noted(state, us, store.verdicts)}
        chosen = replace(chosen, derived=(*chosen.derived, *noted.items()))
        chosen = replace(chosen, served=served, substitute=substitute, overruled=tuple(overruled.items()))
        self.results.record(problem, chosen, judgement=judgement)

    def finish_again(self, state: SizeState, name: str, reason: str) -> None:
        """Finishes a size with the outcome of an earlier start of this run. name: "" if it found none."""
        for other, status, message in self.store.failures(state.problem):
            state.record(other, status, message)
        self.finish(state, name or None, self.store.verdicts(state.problem, name), reason)


def finals_us(finals: Finals, state: SizeState) -> dict[str, float]:
    """``best_first`` of a size's finals."""
    ranked = finals.ranked(state)
    return best_first(state, ranked.order, {name: one.us for name, one in ranked.times.items()})


def calls_us(timings: Iterable[Timing], names: Container[str]) -> list[dict[str, tuple[float, ...]]]:
    """The times of all calls of these configurations in finals, by name, of each process."""
    found: dict[int, dict[str, tuple[float, ...]]] = {}
    for one in timings:
        if one.samples_us and one.name not in BESIDE and one.name in names:
            found.setdefault(one.process, {})[one.name] = one.samples_us
    return list(found.values())


def why_not_right(state: SizeState, repeats: int = 0) -> str:
    """One line that says why no finalist of a size was chosen. repeats: number of additional finals."""
    wrong = len(state.found_wrong())
    of_whom = f"of the finalists, those of {repeats} further finals among them," if repeats else "of the finalists"
    if wrong:
        return f"none {of_whom} is right: {wrong} gave wrong results; see the table of configurations"
    reasons = [f"none {of_whom} could be checked", state.most_common_reason(), "see the table of configurations"]
    return "; ".join(filter(None, reasons))


def why_nothing_timed(state: SizeState) -> str:
    """One line that says why a size has no timing."""
    counts = {status: n for status, n in state.counts().items() if status not in ("", Status.PRUNED.value)}
    if not counts:
        return "nothing was tried; a larger --budget tries more"
    if len(state.kept) == 1 and state.given == set(state.kept):
        return f"the given configuration could not run: {'; '.join(map(state.why_not, state.kept))}"
    listed = ", ".join(f"{n} {status}" for status, n in sorted(counts.items(), key=lambda c: -c[1]))
    return "; ".join(filter(None, [f"no configuration has a time: {listed}", state.most_common_reason()]))

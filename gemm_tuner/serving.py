"""``--serve``: beside the winner of each size, the best that a server's own kernel can launch.

A server launches a plain tile kernel, for which the family STAND_IN stands. Its configurations are searched apart from
the others, the best of them come into the finals together with the server's default, and each is checked like any
finalist.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from gemm_tuner import prepare, prune, space
from gemm_tuner.errors import UserError
from gemm_tuner.export import CONSUMERS
from gemm_tuner.export.consumer import Consumer
from gemm_tuner.ledger import Ledger
from gemm_tuner.prepare import Space
from gemm_tuner.prune import Pruned
from gemm_tuner.records import Device, GemmProblem, KernelConfig, ServedChoice, Verdict, Verified
from gemm_tuner.results_file import Judgement
from gemm_tuner.search.view import Asked, Proposals, Search, SizeView
from gemm_tuner.served import STAND_IN
from gemm_tuner.sizes import SizeEntry

FINALISTS = 4  # of each size and server, beside its default
PREDICTED = 16  # of each size and server that are compiled where there is no GPU

Verdicts = Callable[[GemmProblem, str], Sequence[Verdict]]


@dataclass(frozen=True)
class Server:
    """A consumer on one device.

    given: the one configuration of each size that it is to launch, by name, where these are not searched for.
    older: the configurations of an older results file, which must be beaten by ``least_pct``.
    """

    consumer: Consumer
    device: Device
    given: Mapping[GemmProblem, str] | None = None
    older: Mapping[GemmProblem, KernelConfig] = field(default_factory=dict)
    least_pct: float = 0.0

    @property
    def name(self) -> str:
        return self.consumer.name

    @property
    def _arch(self) -> str:
        return self.device.target.arch

    def fault(self, problem: GemmProblem) -> str:
        """Why its kernel does not compute a problem; empty when it does."""
        return self.consumer.problem_fault(problem, self._arch)

    def can_launch(self, problem: GemmProblem, config: KernelConfig) -> bool:
        if self.given is not None and self.given.get(problem) != config.name:
            return False
        return not self.fault(problem) and not self.consumer.config_fault(problem, config, self._arch)

    def default(self, problem: GemmProblem) -> KernelConfig | None:
        """What it launches without a tuned file; None where that is not known."""
        return None if self.fault(problem) else self.consumer.default_config(problem, self._arch)

    def musts(self, problem: GemmProblem) -> list[KernelConfig]:
        """What is timed whatever the search finds: the default and the older configuration."""
        return [one for one in (self.default(problem), self.older.get(problem)) if one is not None]

    def launchable(self, ledger: Ledger) -> list[str]:
        """The kept configurations of a size that it can launch."""
        return [name for name, config in ledger.kept.items() if self.can_launch(ledger.problem, config)]


def servers(
    names: Iterable[str],
    device: Device,
    older: Mapping[GemmProblem, Mapping[str, KernelConfig]] | None = None,
    least_pct: float = 0.0,
) -> tuple[Server, ...]:
    """older: by problem and server the configurations of an older results file, to be beaten by ``least_pct``."""
    made = []
    for name in dict.fromkeys(names):
        mine = {problem: configs[name] for problem, configs in (older or {}).items() if name in configs}
        made.append(Server(CONSUMERS[name], device, older=mine, least_pct=least_pct))
    return tuple(made)


def given(entries: Iterable[SizeEntry], device: Device) -> tuple[Server, ...]:
    """The servers of a results file's rows, each with the configurations that its rows give it."""
    by_name: dict[str, dict[GemmProblem, str]] = {}
    for entry in entries:
        for one in entry.served:
            by_name.setdefault(one.consumer, {})[entry.problem] = one.config.name
    return tuple(Server(CONSUMERS[name], device, configs) for name, configs in by_name.items())


def admit_given(ledgers: Iterable[Ledger], entries: Iterable[SizeEntry], device: Device) -> None:
    """Takes what a results file's rows give servers among the candidates of their sizes."""
    for ledger, entry in zip(ledgers, entries, strict=True):
        for one in entry.served:
            ledger.admit(one.config, prepare.predicted_us(ledger.problem, one.config, device))


def require_some(wanted: Iterable[Server], problems: Sequence[GemmProblem]) -> None:
    """Raises UserError for a server whose kernel computes none of the problems."""
    for server in wanted:
        faults = [server.fault(problem) for problem in problems]
        if all(faults):
            what = f"{server.name} can launch none of the sizes: {problems[0].key} {faults[0]}"
            raise UserError(what, where="--serve", accepted=server.consumer.takes)


def widened(pruned: Pruned, wanted: Iterable[Server], candidates: Space, problem: GemmProblem) -> Pruned:
    """What the rules kept of a size, and what they keep of each server's own space: there a configuration need not
    compare with families that the server does not have."""
    kept = set(pruned.kept.tolist())
    family, split_k = candidates.columns.family, candidates.columns.SPLIT_K
    for server in wanted:
        if server.fault(problem):
            continue
        mine = np.flatnonzero((family == STAND_IN) & ((split_k == 1) | server.consumer.splits_k))
        frame = candidates.configs.iloc[mine]
        if not len(frame):
            continue
        found = prune.apply(prune.columns_of(frame), problem, server.device, candidates.rules).kept
        configs = space.configs_of(frame.iloc[found])
        kept.update(
            int(place) for place, one in zip(mine[found], configs, strict=True) if server.can_launch(problem, one)
        )
    places = np.array(sorted(kept), dtype=np.intp)
    rejected_by = pruned.rejected_by.copy()
    rejected_by[places] = ""
    return replace(pruned, kept=places, rejected_by=rejected_by)


def admit(wanted: Sequence[Server], ledgers: Iterable[Ledger]) -> None:
    """Takes the servers' defaults and older configurations among the candidates of their sizes, whatever the rules say
    of them."""
    for ledger in ledgers:
        for server in wanted:
            for config in server.musts(ledger.problem):
                ledger.admit(config, prepare.predicted_us(ledger.problem, config, server.device))


def added(wanted: Sequence[Server], ledger: Ledger, finalists: Sequence[str]) -> list[str]:
    """The finalists of a size, the best that each server can launch, by screening, and its default."""
    names = list(finalists)
    screened = ledger.fastest(len(ledger.kept))
    for server in wanted:
        launchable = set(server.launchable(ledger))
        names += [name for name in screened if name in launchable][:FINALISTS]
        musts = [config.name for config in server.musts(ledger.problem)]
        names += [name for name in musts if name in ledger.kept and ledger.may_run(name)]
    return list(dict.fromkeys(names))


@dataclass(frozen=True)
class WithServers:
    """A search of all candidates of a size and, beside it, of those that each server can launch."""

    inner: Search
    launchable: tuple[Mapping[GemmProblem, frozenset[str]], ...]

    @property
    def name(self) -> str:
        return self.inner.name

    def propose(self, sizes: Sequence[SizeView], device: Device) -> Proposals:
        asked = {problem: list(names) for problem, names in self.inner.propose(sizes, device).items()}
        for one in self.launchable:
            views = [only(size, one[size.problem]) for size in sizes if one.get(size.problem)]
            for problem, names in (self.inner.propose(views, device) if views else {}).items():
                asked[problem] = list(dict.fromkeys((*asked.get(problem, ()), *names)))
        return asked

    def likely_next(self, sizes: Sequence[SizeView], device: Device, asked: Asked, count: int) -> Proposals:
        return self.inner.likely_next(sizes, device, asked, count)


def only(size: SizeView, names: frozenset[str]) -> SizeView:
    """A size as if it had no other candidates than these."""
    candidates = size.candidates[size.candidates.index.isin(names)]
    return replace(size.only(names), candidates=candidates)


def with_servers(search: Search, wanted: Sequence[Server], ledgers: Iterable[Ledger]) -> Search:
    """The search that servers' configurations take part in; the same one where there are no servers."""
    ledgers = list(ledgers)
    apart: list[dict[GemmProblem, frozenset[str]]] = []
    for server in wanted:
        found = {ledger.problem: frozenset(server.launchable(ledger)) for ledger in ledgers}
        if found not in apart:
            apart.append(found)
    return WithServers(search, tuple(apart)) if apart else search


def predicted_best(wanted: Sequence[Server], ledger: Ledger, names: Sequence[str]) -> list[str]:
    """Of these names the best that each server can launch, by the model."""
    found: list[str] = []
    for server in wanted:
        launchable = set(server.launchable(ledger))
        mine = [name for name in names if name in launchable]
        found += prepare.best_predicted(ledger, mine, PREDICTED)
    return list(dict.fromkeys(found))


def served_choices(
    wanted: Sequence[Server],
    ledger: Ledger,
    us: Mapping[str, float],
    verdicts: Verdicts,
    verified: Verified = Verified.TRUE,
) -> tuple[ServedChoice, ...]:
    """The best configuration for each server that a check found right.

    us: the finals' times by name, best first; the model's where the check was that of the interpreter.
    verdicts: those on a configuration of a size. verified: by what they are.
    """
    found = []
    for server in wanted:
        right = (name for name in launched(server, ledger, us) if is_right(verdicts(ledger.problem, name)))
        name = next(right, None)
        if name is not None:
            default = server.default(ledger.problem) if verified is Verified.TRUE else None
            default_us = round(us[default.name], 3) if default is not None and default.name in us else None
            found.append(ServedChoice(server.name, ledger.kept[name], round(us[name], 3), verified, default_us))
    return tuple(found)


def judgement(wanted: Iterable[Server], ledger: Ledger) -> Judgement:
    """What a run that looked for these servers says of an earlier row of a size."""
    problem = ledger.problem
    asked = frozenset(one.name for one in wanted if one.given is None or problem in one.given)
    return Judgement(ledger.found_wrong(), asked)


def launched(server: Server, ledger: Ledger, us: Mapping[str, float]) -> list[str]:
    """The finalists of a size that a server can launch and that nothing speaks against, best first. The older
    configuration comes before all that do not beat it by what is asked."""
    kept = ledger.kept
    names = [name for name in us if name in kept and ledger.may_run(name)]
    names = [name for name in names if server.can_launch(ledger.problem, kept[name])]
    older = server.older.get(ledger.problem)
    if older is None or older.name not in names:
        return names
    better = [name for name in names if us[name] * (1 + server.least_pct / 100) < us[older.name]]
    return [*better, older.name, *(name for name in names if name not in better and name != older.name)]


def is_right(verdicts: Sequence[Verdict]) -> bool:
    """Whether a configuration's check came to its end, at the tuned and at the odd size, and was always right."""
    return len({verdict.problem for verdict in verdicts}) >= 2 and all(verdict.ok for verdict in verdicts)


def to_check(
    server: Server, ledgers: Iterable[tuple[Ledger, Mapping[str, float]]], verdicts: Verdicts
) -> list[tuple[Ledger, list[str]]]:
    """The sizes whose best for a server has not been checked, each with what it can launch, best first."""
    order = []
    for ledger, us in ledgers:
        names = launched(server, ledger, us)
        if names and not is_right(verdicts(ledger.problem, names[0])):
            order.append((ledger, names))
    return order

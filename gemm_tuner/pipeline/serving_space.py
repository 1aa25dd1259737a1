"""The configurations that servers can launch: the rules applied to each server's space, and their search."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gemm_tuner.consumers.consumer import STAND_IN
from gemm_tuner.consumers.server import Server
from gemm_tuner.core.errors import UserError
from gemm_tuner.core.records import Device, Problem
from gemm_tuner.core.workload import workload_of
from gemm_tuner.pipeline import prepare, rivals
from gemm_tuner.pipeline.prepare import Space
from gemm_tuner.pipeline.run_options import RunOptions
from gemm_tuner.search.view import Proposals, Requested, Search, SizeView
from gemm_tuner.space import prune, space
from gemm_tuner.space.prune import FunnelRow, Pruned
from gemm_tuner.space.row_groups import Places
from gemm_tuner.space.size_state import SizeState


@dataclass(frozen=True)
class Cut:
    """One size after the rules. funnel: empty if a rule failed. left: its state, or the error if there is none."""

    problem: Problem
    funnel: tuple[FunnelRow, ...]
    left: SizeState | UserError

    @property
    def why_empty(self) -> str:
        """Why nothing is left, in words that do not name the size: sizes with one reason are said together. "" where
        something is left."""
        return self.left.one_line().removeprefix(f"{self.problem.key}: ") if isinstance(self.left, UserError) else ""


def require_answers(sizes: Iterable[Cut]) -> None:
    """Raises UserError for the first size of which a rule gave no answer."""
    for size in sizes:
        if isinstance(size.left, UserError) and not size.funnel:
            raise size.left


def widened(pruned: Pruned, wanted: Iterable[Server], candidates: Space, problem: Problem) -> Pruned:
    """The configurations that the rules keep for a size, plus those that they keep in each server's own space, in which
    rules do not compare with families that the server does not have."""
    places = [places_of(server, candidates, problem) for server in wanted if server.kernel is None]
    return replace(pruned, kept=np.unique(np.concatenate([pruned.kept, *places]))) if places else pruned


def places_of(server: Server, candidates: Space, problem: Problem) -> Places:
    """The row positions of STAND_IN's configurations that the rules keep and a server can launch."""
    mine = np.flatnonzero(server.stand_ins(candidates.columns))
    frame = candidates.configs.iloc[mine]
    if not len(frame) or server.fault(problem):
        return np.arange(0)
    found = prune.apply(prune.columns_of(frame), problem, server.device, candidates.rules).kept
    configs = map(server.launched, space.configs_of(frame.iloc[found]))
    return mine[found[[server.can_launch(problem, one) for one in configs]]]


def kernel_space(wanted: Iterable[Server], options: RunOptions, device: Device) -> Space | None:
    """The space of STAND_IN, whose axes servers' own kernels have; None without such kernels."""
    if not any(server.kernel for server in wanted):
        return None
    return prepare.load_space(replace(options, families=(STAND_IN,)), device)


def extend(state: SizeState, wanted: Iterable[Server], candidates: Space | None) -> None:
    """Adds the configurations of servers' own kernels to the candidates of a size. candidates: ``kernel_space``."""
    for server in wanted:
        if candidates is None or server.kernel is None:
            continue
        rows = candidates.configs.iloc[places_of(server, candidates, state.problem)].assign(family=server.family)
        if len(rows):
            predicted_us = workload_of(state.problem.kind).predict_us(
                prune.columns_of(rows), state.problem, server.device
            )
            state.extend(rows, space.configs_of(rows), predicted_us.tolist())


def cut_sizes(
    options: RunOptions, device: Device, wanted: Sequence[Server], on_size: Callable[[Cut], object] = lambda cut: None
) -> tuple[int, list[Cut]]:
    """(number of configurations in the space, each size after the rules, including the servers' spaces). Raises
    UserError for an invalid space or rules. A size of which rules leave nothing has its configuration of --update.
    on_size: called with each size when it is cut."""
    candidates, of_kernels = prepare.load_space(options, device), kernel_space(wanted, options, device)
    found = []
    for problem in (entry.problem for entry in options.entries):
        funnel: tuple[FunnelRow, ...] = ()
        left: SizeState | UserError
        try:
            pruned = widened(prepare.cut_space(candidates, problem, device), wanted, candidates, problem)
            funnel = pruned.funnel
            older = options.older.get(problem)
            fault = workload_of(problem.kind).type_fault(problem, device)
            if older is not None and fault is None and not len(pruned.kept):  # what the user gave is timed anyway
                left = prepare.given_state(problem, older, device)
            else:
                left = prepare.state_of(candidates, problem, device, pruned)
            extend(left, wanted, of_kernels)
        except UserError as error:
            left = error
        found.append(Cut(problem, funnel, left))
        on_size(found[-1])
    return len(candidates.configs), found


@dataclass(frozen=True)
class SearchedApart:
    """Runs a search on the candidates that can win a size, and separately on others: those that each server can launch,
    and each sort of rivals."""

    inner: Search
    own: Mapping[Problem, frozenset[str]]
    apart: tuple[Mapping[Problem, frozenset[str]], ...]

    def propose(self, sizes: Sequence[SizeView], device: Device) -> Proposals:
        own = [only(size, self.own[size.problem]) for size in sizes]
        requested = {problem: list(names) for problem, names in self.inner.propose(own, device).items()}
        for one in self.apart:
            views = [only(size, one[size.problem]) for size in sizes if one.get(size.problem)]
            for problem, names in (self.inner.propose(views, device) if views else {}).items():
                requested[problem] = list(dict.fromkeys((*requested.get(problem, ()), *names)))
        return requested

    def likely_next(self, sizes: Sequence[SizeView], device: Device, requested: Requested, count: int) -> Proposals:
        return self.inner.likely_next([only(size, self.own[size.problem]) for size in sizes], device, requested, count)


def only(size: SizeView, names: frozenset[str]) -> SizeView:
    """A size with only these candidates, and the axes that they have."""
    candidates = size.candidates[size.candidates.index.isin(names)].dropna(axis="columns", how="all")
    return replace(size.only(names), candidates=candidates)


def searched_apart(search: Search, wanted: Sequence[Server], states: Iterable[SizeState]) -> Search:
    """The search extended to configurations that are searched separately; the same search without any."""
    states = list(states)
    apart: list[dict[Problem, frozenset[str]]] = []
    beside = {state.problem: rivals.of_size(state) for state in states}
    for key in rivals.keys(states):
        apart.append({problem: of_key.get(key, frozenset()) for problem, of_key in beside.items()})
    for server in wanted:
        found = {state.problem: frozenset(server.launchable(state)) for state in states}
        if found not in apart:
            apart.append(found)
    own = {state.problem: frozenset(state.own) for state in states}
    return SearchedApart(search, own, tuple(apart)) if apart else search

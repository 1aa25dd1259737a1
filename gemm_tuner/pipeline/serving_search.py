"""The search of what servers can launch, beside that of each size's own configuration."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from gemm_tuner.core.records import Device, Problem
from gemm_tuner.gemm.config import KERNEL_FAMILIES
from gemm_tuner.pipeline.serving import Server
from gemm_tuner.search.view import Asked, Proposals, Search, SizeView
from gemm_tuner.space.size_state import SizeState


@dataclass(frozen=True)
class WithServers:
    """A search of all candidates of a size and, beside it, of those that each server can launch."""

    inner: Search
    launchable: tuple[Mapping[Problem, frozenset[str]], ...]

    @property
    def name(self) -> str:
        return self.inner.name

    def propose(self, sizes: Sequence[SizeView], device: Device) -> Proposals:
        own = [without_servers_kernels(size) for size in sizes]
        asked = {problem: list(names) for problem, names in self.inner.propose(own, device).items()}
        for one in self.launchable:
            views = [only(size, one[size.problem]) for size in sizes if one.get(size.problem)]
            for problem, names in (self.inner.propose(views, device) if views else {}).items():
                asked[problem] = list(dict.fromkeys((*asked.get(problem, ()), *names)))
        return asked

    def likely_next(self, sizes: Sequence[SizeView], device: Device, asked: Asked, count: int) -> Proposals:
        return self.inner.likely_next([without_servers_kernels(size) for size in sizes], device, asked, count)


def without_servers_kernels(size: SizeView) -> SizeView:
    """A size as if servers' own kernels, which cannot win it, were not among its candidates."""
    of_servers = size.candidates["family"].isin(list(KERNEL_FAMILIES.values()))
    return only(size, frozenset(size.candidates.index[~of_servers])) if of_servers.any() else size


def only(size: SizeView, names: frozenset[str]) -> SizeView:
    """A size as if it had no other candidates than these."""
    candidates = size.candidates[size.candidates.index.isin(names)]
    return replace(size.only(names), candidates=candidates)


def with_servers(search: Search, wanted: Sequence[Server], states: Iterable[SizeState]) -> Search:
    """The search that servers' configurations take part in; the same one where there are no servers."""
    states = list(states)
    apart: list[dict[Problem, frozenset[str]]] = []
    for server in wanted:
        found = {state.problem: frozenset(server.launchable(state)) for state in states}
        if found not in apart:
            apart.append(found)
    return WithServers(search, tuple(apart)) if apart else search

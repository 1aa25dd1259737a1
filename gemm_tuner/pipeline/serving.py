"""``--serve``: in addition to the winner of each size, the best configuration that a server's kernel can launch.

A server launches a plain tile kernel, in place of which the family STAND_IN is timed, or its own kernel if
--kernel_from found it. Its configurations are searched separately; the best of them and the server's default are
finalists, and each is checked like any finalist. Results show served configurations with the family STAND_IN.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from gemm_tuner.consumers import CONSUMERS
from gemm_tuner.consumers.consumer_kernel import ConsumerKernel
from gemm_tuner.consumers.server import Server
from gemm_tuner.core.choice import ServedChoice
from gemm_tuner.core.errors import UserError
from gemm_tuner.core.records import Config, Device, Problem, Verdict, Verified
from gemm_tuner.decide.ranking import Published
from gemm_tuner.pipeline import prepare
from gemm_tuner.pipeline.run_options import RunOptions
from gemm_tuner.space.size_state import Named, SizeState
from gemm_tuner.store.results_file import Judgement
from gemm_tuner.store.sizes import SizeEntry

FINALISTS = 4  # number per size and server, in addition to its default
PREDICTED = 16  # number per size and server that are compiled without a GPU

Verdicts = Callable[[Problem, str], Sequence[Verdict]]


def servers(
    names: Iterable[str],
    device: Device,
    older: Mapping[Problem, Mapping[str, Config]] | None = None,
    least_pct: float = 0.0,
    kernels: Mapping[str, ConsumerKernel] | None = None,
) -> tuple[Server, ...]:
    """The servers of these names. older: configurations of an older results file by problem and server, which new ones
    must beat by ``least_pct``. kernels: servers' own kernels, by server."""
    made = []
    for name in dict.fromkeys(names):
        mine = {problem: configs[name] for problem, configs in (older or {}).items() if name in configs}
        kernel = (kernels or {}).get(name)
        made.append(Server(CONSUMERS[name], device, older=mine, least_pct=least_pct, kernel=kernel))
    return tuple(made)


def given(
    entries: Sequence[SizeEntry], device: Device, kernels: Mapping[str, ConsumerKernel] | None = None
) -> tuple[Server, ...]:
    """The servers in the rows of a results file, with their configurations. kernels: servers' own kernels, by
    server."""
    served = [(entry.problem, one) for entry in entries for one in entry.served]
    return tuple(
        replace(server, given={p: server.launched(one.config).name for p, one in served if one.consumer == server.name})
        for server in servers((one.consumer for _, one in served), device, kernels=kernels)
    )


def add_given(wanted: Iterable[Server], states: Iterable[SizeState], entries: Iterable[SizeEntry]) -> None:
    """Adds the servers' configurations in the rows of a results file to the candidates of their sizes."""
    by_name = {server.name: server for server in wanted}
    for state, entry in zip(states, entries, strict=True):
        for one in entry.served:
            server = by_name[one.consumer]
            config = server.launched(one.config)
            state.add(config, prepare.predicted_us(state.problem, config, server.device))


def add(wanted: Sequence[Server], states: Iterable[SizeState]) -> None:
    """Adds the servers' defaults and older configurations to the candidates of their sizes, even if rules reject
    them."""
    for state in states:
        for server in wanted:
            for config in server.musts(state.problem):
                state.add(config, prepare.predicted_us(state.problem, config, server.device))


def added(wanted: Sequence[Server], state: SizeState, finalists: Sequence[str]) -> list[str]:
    """The finalists of a size, plus the best of screening that each server can launch, and its default."""
    names = list(finalists)
    screened = state.fastest(len(state.kept))
    for server in wanted:
        launchable = set(server.launchable(state))
        names += [name for name in screened if name in launchable][:FINALISTS]
        musts = [config.name for config in server.musts(state.problem)]
        names += [name for name in musts if name in state.kept and state.may_run(name)]
    return list(dict.fromkeys(names))


def predicted_best(wanted: Sequence[Server], state: SizeState, names: Sequence[str]) -> list[str]:
    """The best of these names, by the model, that each server can launch."""
    found: list[str] = []
    for server in wanted:
        launchable = set(server.launchable(state))
        mine = [name for name in names if name in launchable]
        found += prepare.best_predicted(state, mine, PREDICTED)
    return list(dict.fromkeys(found))


def served_choices(
    wanted: Sequence[Server],
    state: SizeState,
    us: Mapping[str, float],
    verdicts: Verdicts,
    verified: Verified = Verified.TRUE,
    published: Mapping[str, Published] | None = None,
) -> tuple[ServedChoice, ...]:
    """The best verified configuration for each server.

    us:        times by name, best first: of the finals, or of the model for checks in the interpreter.
    verdicts:  returns the verdicts of a configuration of a size.
    verified:  the value for checks with a reference (TRUE or INTERPRETED).
    published: published times of the finals, by name.
    """
    found = []
    for server in wanted:
        right = (name for name in launched(server, state, us) if is_right(verdicts(state.problem, name)))
        name = next(right, None)
        if name is not None:
            default = server.default(state.problem) if verified is Verified.TRUE else None
            default_us = round(us[default.name], 3) if default is not None and default.name in us else None
            config, kernel = server.served(state.kept[name]), server.kernel.label if server.kernel else ""
            made = ServedChoice(server.name, config, round(us[name], 3), verified, default_us, kernel=kernel)
            found.append(replace(made, **_processes(published[name])) if published and name in published else made)
    return tuple(found)


def _processes(found: Published) -> dict[str, Any]:
    """The fields of a ServedChoice about finals processes."""
    spread_pct = None if found.spread_pct is None else round(found.spread_pct, 2)
    return {"processes": found.processes, "process_spread_pct": spread_pct}


def judgement(wanted: Iterable[Server], state: SizeState) -> Judgement:
    """The findings of a run with these servers about an earlier row of a size."""
    problem = state.problem
    asked = frozenset(one.name for one in wanted if one.given is None or problem in one.given)
    return Judgement(state.found_wrong(), asked)


def launched(server: Server, state: SizeState, us: Mapping[str, float]) -> list[str]:
    """The finalists of a size that a server can launch and that have not failed, best first. The older configuration
    comes before all that do not beat it by the required margin."""
    kept = state.kept
    names = [name for name in us if name in kept and state.may_run(name)]
    names = [name for name in names if server.can_launch(state.problem, kept[name])]
    given = server.older.get(state.problem)
    older = server.launched(given).name if given else ""
    if older not in names:
        return names
    better = [name for name in names if us[name] * (1 + server.least_pct / 100) < us[older]]
    return [*better, older, *(name for name in names if name not in better and name != older)]


def is_right(verdicts: Sequence[Verdict]) -> bool:
    """Whether a configuration was checked at the tuned and at the odd size, and was correct at both."""
    return len({verdict.problem for verdict in verdicts}) >= 2 and all(verdict.ok for verdict in verdicts)


def to_check(server: Server, states: Iterable[tuple[SizeState, Mapping[str, float]]], verdicts: Verdicts) -> Named:
    """The sizes whose best configuration for a server is not checked yet, with those it can launch, best first."""
    order = []
    for state, us in states:
        names = launched(server, state, us)
        if names and not is_right(verdicts(state.problem, names[0])):
            order.append((state, names))
    return order


IN_A_FILE = (
    "flags are for what an entry leaves out: change the entries, or write them anew by the subcommand sizes, as by "
    "sizes --from config.json --dtype fp8_e4m3 --scaling block, which says layout_b: col itself"
)


def asked_for(options: RunOptions, device: Device) -> tuple[Server, ...]:
    """The servers of --serve. Raises UserError for one whose kernel computes none of the sizes."""
    wanted = servers(options.serve, device, kernels=options.kernels)
    problems = [entry.problem for entry in options.entries]
    require_some(wanted, problems, hint=IN_A_FILE if "gemm_size_file" in options.given else "")
    return wanted


def require_some(wanted: Iterable[Server], problems: Sequence[Problem], hint: str = "") -> None:
    """Raises UserError, with all reasons, for a server whose kernel computes none of the problems."""
    for server in wanted:
        faults = Counter(server.fault(problem) for problem in problems)
        if "" not in faults:
            reasons = "; ".join(f"{sizes(count)} {fault}" for fault, count in faults.most_common())
            what = f"{server.name} can launch none of the sizes: {reasons}"
            raise UserError(what, where="--serve", accepted=server.consumer.takes, hint=hint)


def sizes(count: int) -> str:
    """A number of sizes as the subject of a sentence in the singular."""
    return "1 size" if count == 1 else f"each of {count} sizes"

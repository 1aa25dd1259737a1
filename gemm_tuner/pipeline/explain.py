"""``--explain``: whether configurations are tried, and which rule rejects them. Uses no GPU."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd
from rich.console import Console

from gemm_tuner.consumers.server import Server
from gemm_tuner.core.errors import UserError
from gemm_tuner.core.plain_config import in_name
from gemm_tuner.core.records import Device
from gemm_tuner.core.workload import workload_of
from gemm_tuner.pipeline import predicted_candidates, prepare, serving, serving_space, show
from gemm_tuner.pipeline.prepare import Space
from gemm_tuner.pipeline.run_options import RunOptions
from gemm_tuner.search import expected_requests
from gemm_tuner.space.size_state import SizeState
from gemm_tuner.system.documents import show as show_value
from gemm_tuner.system.terminal_table import print_line
from gemm_tuner.system.values import did_you_mean

Rows = npt.NDArray[np.intp]
FLAG = "--explain"


def explain(options: RunOptions, text: str, out: Console) -> None:
    """Prints, for every size, which rule rejects a configuration, or all that match FIELD=VALUE,...; of those that no
    rule rejects, their place by the model, and whether a run here asks for them. Raises UserError."""
    environment = prepare.look_around(options, for_a_run=False)
    device = environment.device
    options = prepare.on_device(options, device)
    servers = serving.asked_for(options, device)
    candidates = prepare.load_space(options, device)
    require_family_of(text, prepare.absent_families(options, device.target.arch))
    rows = matching(candidates, text, device)
    for problem in (entry.problem for entry in options.entries):
        matches = "1 configuration" if len(rows) == 1 else f"{len(rows)} configurations"
        print_line(out, f"{show.size_name(out, problem)} on {device.target.arch}: {matches}")
        fault = workload_of(problem.kind).type_fault(problem, device)
        if fault is not None:
            print_line(out, f"  {len(rows)}  not tried: {fault.one_line()}")
            continue
        pruned = serving_space.widened(prepare.cut_space(candidates, problem, device), servers, candidates, problem)
        kept = rows[np.isin(rows, pruned.kept)]
        if len(kept):
            state = prepare.state_of(candidates, problem, device, pruned)
            names = candidates.names_of(kept).tolist()
            print_line(out, f"  {len(kept)}  kept: no rule cuts {'it' if len(rows) == 1 else 'them'}")
            for line in of_the_kept(options, servers, state, names, predicted=environment.source == "predicted"):
                print_line(out, f"     {line}")
        why = {row.rule: row for row in pruned.funnel}
        cut = pruned.rejected_by[np.setdiff1d(rows, kept)].astype(str)
        for rule, count in zip(*np.unique(cut, return_counts=True), strict=True):
            print_line(out, f"  {count}  cut by {rule} ({why[rule].kind.value}): {why[rule].why}")


def of_the_kept(
    options: RunOptions, servers: Sequence[Server], state: SizeState, names: Sequence[str], *, predicted: bool
) -> Iterator[str]:
    """The place by the model of configurations that the rules keep, and whether a run asks for them. predicted: it only
    predicts times."""
    of = f"of {len(state.kept)}"
    which = "this one" if len(names) == 1 else "these"
    if len(set(state.predicted_us.values())) > 1:  # else there is no model
        order = prepare.best_predicted(state, list(state.kept), len(state.kept))
        place_of = {name: place for place, name in enumerate(order, 1)}
        places = sorted(place_of[name] for name in names)
        yield f"by the model: place {places[0]}{'' if len(names) == 1 else f' to {places[-1]}'} {of}"
    if predicted:
        yield from compiled_here(options, servers, state, names)
        return
    asked = expected_requests(options.search, len(state.kept), options.kind)
    if asked < len(state.kept):
        yield f"--search {options.search} times about {asked} {of}, and may not ask for {which}"


def compiled_here(
    options: RunOptions, servers: Sequence[Server], state: SizeState, names: Sequence[str]
) -> Iterator[str]:
    """How many of these a run without a GPU compiles, and why not all."""
    of_size, one = predicted_candidates.of_size(options, servers, state), len(names) == 1
    first, more = set(of_size.first) & set(names), set(of_size.possible) & set(names)
    among = ("" if first else "not ") + "this one" if one else f"{len(first)} of these"
    compiled = f"{len(of_size.first)} of {len(state.kept)}, {among} among them"
    if len(of_size.first) == len(state.kept):
        compiled = f"all {len(state.kept)}"
    yield f"a run here, without such a GPU, compiles {compiled}"
    if not first and more:
        yield "it compiles more where few of those fit"
    if len(first) < len(names) and not all(predicted_candidates.is_checked(options, state, name) for name in names):
        yield f"of families that only a GPU checks it compiles {len(of_size.beside)}"


def require_family_of(text: str, absent: Mapping[str, str]) -> None:
    """Raises UserError for a configuration of a family that is absent here. absent: by family, what it takes."""
    for family in sorted(absent, key=len, reverse=True):
        if text.startswith(f"{family}_") or re.search(rf"(^|,)\s*family\s*=\s*{family}\s*(,|$)", text):
            raise UserError(f"{family} needs what is not installed", where=FLAG, hint=absent[family])


def matching(candidates: Space, text: str, device: Device) -> Rows:
    """The rows with this name or short form, or that match FIELD=VALUE,... Raises UserError if there are none."""
    if "=" in text:
        return with_values(candidates, text, device)
    meant = (text, *workload_of(candidates.kind).whole_names(text))
    for name in meant:
        rows, names = named_alike(candidates, name)
        if len(found := rows[np.flatnonzero(names == name)]):
            return found
    # commonprefix compares character by character, which is intended here.
    near = max(names, key=lambda name: len(os.path.commonprefix([name, meant[-1]])))  # noqa: RUF071
    raise UserError(
        f"{show_value(text)} is no configuration of the space of {device.target.arch}",
        where=FLAG,
        accepted=f"a name such as {near}, or FIELD=VALUE,...",
        hint="whole names are in a run's tables, configs/*.csv.gz, and in what is piped",
    )


def named_alike(candidates: Space, text: str) -> tuple[Rows, npt.NDArray[np.object_]]:
    """The rows and names of the families whose names begin as the text does; of all where none does, whose names take
    seconds to make."""
    families = [name for name in candidates.columns.families if text.startswith(f"{name}_")]
    rows = np.flatnonzero(candidates.columns.family.isin(families))
    if not len(rows):
        return np.arange(len(candidates.configs)), candidates.names
    return rows, candidates.names_of(rows)


def with_values(candidates: Space, text: str, device: Device) -> Rows:
    """The rows that match FIELD=VALUE,... Raises UserError if there are none."""
    mask = np.ones(len(candidates.configs), dtype=bool)
    given: set[str] = set()
    axes = [str(axis) for axis in candidates.configs.columns]
    for part in text.split(","):
        field, _, value = (word.strip() for word in part.partition("="))
        if field not in axes or not re.fullmatch("[0-9A-Za-z_]{1,64}", value):
            hint = did_you_mean(field, axes) if field not in axes else ""
            accepted = f"FIELD=VALUE,..., such as 64 or 16x8, of the fields {', '.join(axes)}"
            raise UserError(f"{show_value(part.strip())} is no FIELD=VALUE", where=FLAG, accepted=accepted, hint=hint)
        if field in given:
            raise UserError(f"{field} is given twice", where=FLAG)
        given.add(field)
        place, different = pd.factorize(candidates.configs[field])
        wanted = [number for number, one in enumerate(different) if in_name(one) == value]
        if not wanted:
            values = ", ".join(map(in_name, sorted(different)))
            raise UserError(f"{field} {value} is not in the space of {device.target.arch}", where=FLAG, accepted=values)
        mask &= np.isin(place, wanted)
    return np.flatnonzero(mask)

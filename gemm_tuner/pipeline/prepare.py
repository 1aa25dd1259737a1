"""Prepares a run from its options: the device, the space, the rules, and the candidates of every size."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from gemm_tuner.consumers.consumer import STAND_IN
from gemm_tuner.core.axes import OwnSpace
from gemm_tuner.core.errors import EnvironmentFault, UserError
from gemm_tuner.core.records import Config, Device, Problem
from gemm_tuner.core.workload import workload_of
from gemm_tuner.measure import device as devices
from gemm_tuner.measure import host, replay
from gemm_tuner.pipeline.run_options import RunOptions
from gemm_tuner.profilers import AUTO
from gemm_tuner.space import prune, space
from gemm_tuner.space.prune import Pruned
from gemm_tuner.space.row_groups import Axes
from gemm_tuner.space.rule import HEURISTIC, VALIDITY, Rule
from gemm_tuner.space.size_state import SizeState
from gemm_tuner.system.documents import show
from gemm_tuner.system.values import did_you_mean

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Environment:
    """Where a run takes place. gpus: empty if nothing can be timed; then all results are predicted. remote: they are
    in other machines."""

    device: Device
    gpus: tuple[int, ...]
    machine: devices.Machine
    recording: replay.Recording | None = None
    remote: bool = False

    @property
    def source(self) -> str:
        return "replayed" if self.recording else "measured" if self.gpus else "predicted"


@dataclass(frozen=True)
class Space:
    """All configurations of an architecture, and the rules for them. kind: of the problems. axes: whose combinations
    the configurations are; empty if they are not all of some axes' combinations."""

    configs: pd.DataFrame
    columns: Any
    rules: tuple[Rule, ...]
    kind: str
    axes: Axes = field(default_factory=dict)

    def names_of(self, rows: npt.NDArray[np.intp]) -> npt.NDArray[np.object_]:
        """The names of some configurations, which take longer to make than all else of a space."""
        return space.names(self.configs.iloc[rows], self.kind).to_numpy(dtype=object)

    @cached_property
    def names(self) -> npt.NDArray[np.object_]:
        return self.names_of(np.arange(len(self.configs)))


def find_environment(options: RunOptions, known: devices.Machine | None = None) -> Environment:
    """The environment of a run (``look_around``). Raises EnvironmentFault if the user named a profiler but nothing can
    be timed, because predicted times are then not what the user wants."""
    environment = look_around(options, known)
    if options.profiler != AUTO and environment.source == "predicted":
        gpu = environment.machine.gpus[0] if environment.machine.gpus else None
        here = f"this machine's GPU is {gpu['arch']}" if gpu else "torch sees no GPU on this machine"
        raise EnvironmentFault(
            f"{here}, so nothing for {environment.device.target.arch} can run under {options.profiler}",
            where="--profiler",
            hint="without --profiler the times are predicted",
        )
    return environment


def look_around(options: RunOptions, known: devices.Machine | None = None, *, for_a_run: bool = True) -> Environment:
    """The environment: the GPUs of this machine, or the requested architecture. GPUs of another architecture are not
    used.

    known:     the machine, if it is already known.
    for_a_run: GPUs named by flags must exist, otherwise raises EnvironmentFault or UserError.
    """
    if options.profiler == "replay":
        recording = replay.load(options.replay_dir)
        machine = recording.machine
        arch = machine.gpu(0)["arch"]
        if options.arch not in ("", arch):
            raise UserError(f"the recording is of {arch}, not {options.arch}", where="--arch", accepted=arch)
        assumed = assumed_device(options, arch)
        return Environment(devices.measured_device(assumed, machine.gpu(0)), (0,), machine, recording)
    machine = known or (host.look() if options.language.backends == ("cpu",) else found_machine(options))
    asked_for = (options.gpu_ids is not None or options.ngpus is not None) and (for_a_run or bool(machine.gpus))
    gpus = devices.choose_gpus(machine, options.gpu_ids, options.ngpus) if asked_for or machine.gpus else ()
    arch_of_gpu = machine.gpu(gpus[0])["arch"] if gpus else ""
    if not gpus or options.arch not in ("", arch_of_gpu):
        if asked_for and for_a_run:
            accepted = f"{arch_of_gpu}, or no GPU named"
            raise UserError(f"GPU {gpus[0]} is {arch_of_gpu}, not {options.arch}", where="--arch", accepted=accepted)
        return Environment(assumed_device(options, options.arch or devices.DEFAULT_ARCH), (), machine)
    gpu = machine.gpu(gpus[0])
    return Environment(devices.measured_device(assumed_device(options, gpu["arch"]), gpu), gpus, machine)


def found_machine(options: RunOptions) -> devices.Machine:
    """This machine, for which a thread may have begun to look. Raises EnvironmentFault if torch is broken."""
    return options.looking.result() if options.looking else devices.look()


def on_cluster(environment: Environment, gpus: int) -> Environment:
    """The environment of a run whose GPUs are a cluster's; all of them play back a recording that is given."""
    machine = environment.machine
    if environment.recording is not None and gpus:
        machine = replace(machine, gpus=tuple({**machine.gpu(0), "id": number} for number in range(gpus)))
        environment = replace(environment, gpus=tuple(range(gpus)), machine=machine)
    return replace(environment, remote=True)


def assumed_device(options: RunOptions, arch: str) -> Device:
    """The device described by the space file used for the architecture, with a name that says so if the file is that of
    another architecture."""
    device = space.load(space_file(options, arch), arch, options.kind).device
    return replace(device, name=f"{arch} like {device.name}") if note(options, arch) else device


def note(options: RunOptions, arch: str) -> str:
    """A warning if the space file of another architecture is used; else ""."""
    return "" if options.space_file else space.stand_in_note(options.rules_dir, arch)


def absent_note(options: RunOptions, arch: str) -> str:
    """What it takes to have families of the space that are absent here; empty where none is, or none was asked for."""
    found = absent_families(options, arch)
    lines = dict.fromkeys(found.values())
    return f"without {', '.join(found)}: {'; '.join(lines)}" if found else ""


def absent_families(options: RunOptions, arch: str) -> dict[str, str]:
    """What it takes to have each family of the space that is absent here, if it was asked for."""
    workload = workload_of(options.kind)
    if not workload.other_languages(options.families):
        return {}
    loaded, problems = space.load(space_file(options, arch), arch, options.kind), [e.problem for e in options.entries]
    own = workload.own_space(problems, loaded.device) if problems else None
    return workload.absent((own or loaded).families)


def require_families_of_older(options: RunOptions) -> None:
    """Raises UserError if configurations of --update cannot run here, so that any others would replace them."""
    asked_for = {entry.problem for entry in options.entries}
    families = [config.family for problem, config in options.older.items() if problem in asked_for]
    absent = workload_of(options.kind).absent(dict.fromkeys(families))
    if absent:
        count = sum(family in absent for family in families)
        what = (
            f"{count} of the {len(families)} configurations to beat are of {', '.join(absent)}, which is not installed"
        )
        hints = (*dict.fromkeys(absent.values()), "or leave their sizes, or --update, out")
        raise UserError(what, where="--update", hint="; ".join(hints))


def space_file(options: RunOptions, arch: str) -> Any:
    return options.space_file or space.space_path(options.rules_dir, arch)


def on_device(options: RunOptions, device: Device) -> RunOptions:
    """The options with problems completed by ``Workload.on_device``. Raises UserError."""
    if not options.entries:
        return options
    problems = workload_of(options.kind).on_device([entry.problem for entry in options.entries], device)
    entries = [replace(entry, problem=problem) for entry, problem in zip(options.entries, problems, strict=True)]
    return replace(options, entries=tuple(entries))


def load_space(options: RunOptions, device: Device) -> Space:
    """All configurations for the device's architecture, and the rules. Raises UserError."""
    arch = device.target.arch
    stands_in = any(name not in options.kernels for name in options.serve)
    families = (*options.families, STAND_IN) if options.families and stands_in else options.families
    problems = [entry.problem for entry in options.entries]
    own = workload_of(options.kind).own_space(problems, device) if problems else None
    loaded = space.load(space_file(options, arch), arch, options.kind, own.families if own else None)
    absent = workload_of(options.kind).absent(loaded.families)
    there = {name: axes for name, axes in loaded.families.items() if name not in absent}
    named = [name for name in families if name not in absent]
    if not there or (families and not named):
        (name, why), *_ = absent.items()
        raise UserError(f"{name} needs what is not installed", where="--families", hint=why)
    axes = of_families(there, named)
    configs = space.frame(replace(loaded, families=axes))
    rules = (
        rules_of(own, heuristics=options.heuristics)
        if own
        else prune.load_rules(options.rules_dir, heuristics=options.heuristics)
    )
    return Space(configs, prune.columns_of(configs, axes), rules, options.kind, axes)


def rules_of(own: OwnSpace, *, heuristics: bool = True) -> tuple[Rule, ...]:
    """The rules of a space that comes with problems: validity rules, then heuristics."""
    kinds = [(VALIDITY, own.rules), *([(HEURISTIC, own.heuristics)] if heuristics else [])]
    return tuple(Rule(name, kind, why, keep) for kind, rules in kinds for name, why, keep in rules)


def of_families(axes: Axes, families: Sequence[str]) -> dict[str, Any]:
    """The axes of the named families; all if none is named. Raises UserError for an unknown family."""
    unknown = [name for name in families if name not in axes]
    if unknown:
        what, accepted = f"{show(unknown[0])} is no family of this space", ", ".join(axes)
        raise UserError(what, where="--families", accepted=accepted, hint=did_you_mean(unknown[0], axes))
    return {name: values for name, values in axes.items() if not families or name in families}


def cut_space(candidates: Space, problem: Problem, device: Device) -> Pruned:
    """Applies the rules for one size."""
    return prune.apply(candidates.columns, problem, device, candidates.rules, candidates.axes)


def state_of(candidates: Space, problem: Problem, device: Device, pruned: Pruned) -> SizeState:
    """The state of a size after the rules. Raises UserError if nothing is left or the device lacks the types."""
    workload = workload_of(problem.kind)
    fault = workload.type_fault(problem, device)
    if fault is not None:
        raise fault
    if not len(pruned.kept):
        raise prune.nothing_left(pruned, problem, some_are_valid=some_are_valid(candidates, problem, device))
    kept_rows = candidates.configs.iloc[pruned.kept]
    kept = dict(zip(candidates.names_of(pruned.kept), space.configs_of(kept_rows, problem.kind), strict=True))
    predicted = workload.predict_us(prune.columns_of(kept_rows), problem, device)
    predicted_us = dict(zip(kept, predicted.tolist(), strict=True))
    given = set(kept) if workload.configs_are_given else set[str]()
    return SizeState(problem, candidates.configs, pruned, kept, predicted_us, given=given)


def some_are_valid(candidates: Space, problem: Problem, device: Device) -> bool:
    """Whether the validity rules alone keep a configuration of a size."""
    validity = tuple(rule for rule in candidates.rules if rule.kind is VALIDITY)
    return len(prune.apply(candidates.columns, problem, device, validity, candidates.axes).kept) > 0


def state_of_given(problem: Problem, configs: Sequence[Config]) -> SizeState:
    """The state of a size with given configurations, without predictions (times of 0)."""
    kept = {config.name: config for config in configs}
    rows = space.table_of(kept.values())
    pruned = Pruned(np.arange(len(kept)), total=len(kept))
    return SizeState(problem, rows, pruned, kept, dict.fromkeys(kept, 0.0), given=set(kept))


def given_state(problem: Problem, config: Config, device: Device) -> SizeState:
    """The state of a size with a single given configuration and its predicted time."""
    predicted = {config.name: predicted_us(problem, config, device)}
    return replace(state_of_given(problem, [config]), predicted_us=predicted)


def predicted_us(problem: Problem, config: Config, device: Device) -> float:
    """The model's time of one configuration."""
    row = space.table_of([config])
    return float(workload_of(problem.kind).predict_us(prune.columns_of(row), problem, device)[0])


def best_predicted(state: SizeState, names: Sequence[str], count: int) -> list[str]:
    """The ``count`` fastest names by the model, fastest first; of equal ones those first that spill less, as far as
    they are compiled."""
    spills = {name: state.rows.get(name, {}).get("spills") or 0 for name in names}
    return sorted(names, key=lambda name: (state.predicted_us[name], spills[name]))[:count]


def require_a_type(problems: Iterable[Problem], device: Device) -> None:
    """Raises UserError, for the first problem, if the architecture supports the types of no problem."""
    faults = [workload_of(problem.kind).type_fault(problem, device) for problem in problems]
    if faults and all(faults):
        raise next(fault for fault in faults if fault)

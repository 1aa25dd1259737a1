"""Whole calls of fused MoE layers, alignment to sum: timed for what was tuned, the server's default, its current file
and this package's own kernel beside it, after a run, in a process of their own, and kept beside the results file."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from gemm_tuner.core.errors import EnvironmentFault
from gemm_tuner.core.records import Config, Device, Problem
from gemm_tuner.languages import kernel_cache
from gemm_tuner.languages.together import named
from gemm_tuner.measure import device as devices
from gemm_tuner.measure.launcher_process import launcher_env
from gemm_tuner.moe import launchers, routing
from gemm_tuner.moe.cute import FUSED_KEY
from gemm_tuner.moe.problem import MoeProblem
from gemm_tuner.moe.workload import WORKLOAD
from gemm_tuner.source import codegen
from gemm_tuner.store import results
from gemm_tuner.system import gpu_lock
from gemm_tuner.system.documents import write_text_atomically
from gemm_tuner.system.json_records import load_json
from gemm_tuner.system.processes import module_command
from gemm_tuner.system.source_hash import files_sha
from gemm_tuner.system.terminal_table import Column, print_line, print_table

# fused: ours whose first GEMM computes the activation, of which GEMMs' times say nothing beside others'.
TUNED, DEFAULT, CURRENT, OURS, FUSED = LABELS = ("tuned", "default", "current", "own", "fused")
LIMIT_S = 300.0
CHILD = (*module_command("gemm_tuner.moe.whole_call_process"),)

# Microseconds by label, by key of the problem.
Times = dict[str, dict[str, float]]


@dataclass(frozen=True)
class Layer:
    """configs: by label; equal ones are timed once each."""

    problem: MoeProblem
    configs: Mapping[str, Config]


def path_of(results_file: Path) -> Path:
    """By key of the problem: times by label, microseconds, and names of the configurations that they are of."""
    return results_file.with_name(f"{results_file.stem}.whole_calls.json")


def read(results_file: Path) -> dict[str, dict[str, Any]]:
    path = path_of(results_file)
    found = load_json(path, "file of whole calls") if path.exists() else {}
    return found if isinstance(found, dict) else {}


def layers(
    results_file: Path, asked: Iterable[MoeProblem], current: Mapping[Problem, Config], device: Device
) -> list[Layer]:
    """Those of the problems that the file has a measured configuration of. asked: with their kernels."""
    found, known = results.read(results_file), {one: one for one in asked}
    made = []
    for row in found.rows:
        problem = known.get(row.problem) if isinstance(row.problem, MoeProblem) else None
        if problem is None or row.config is None or found.source_of(row) != "measured":
            continue
        default = WORKLOAD.default_config(problem, device)
        configs: dict[str, Config] = {TUNED: row.config, **({DEFAULT: default} if default else {})}
        if row.problem in current:
            configs[CURRENT] = current[row.problem]
        derived = row.facts.get("derived", {})
        if fused := launchers.ours_named(str(derived.get(FUSED_KEY, ""))):
            configs[FUSED] = fused
        if ours := launchers.ours_named(str(derived.get("own_kernel", ""))):
            configs[OURS] = ours
        elif row.substitute is not None:  # ours in Triton, beside a winner in CuTe DSL
            configs[OURS] = row.substitute.config
        made.append(Layer(problem, configs))
    return made


def timed(
    some: Sequence[Layer], templates: Path, device: Device, gpu: int, environ: Mapping[str, str],
    child: Sequence[str] = CHILD,
) -> tuple[Times, list[str]]:  # fmt: skip
    """The times, and a line for each layer, server or label of it that has none. child: what a plan is appended
    to."""
    times: Times = {}
    faults: list[str] = []
    variable = "CUDA_VISIBLE_DEVICES" if device.target.backend == "cuda" else "ROCR_VISIBLE_DEVICES"
    for signature in dict.fromkeys(one.problem.signature for one in some):
        mine = [one for one in some if one.problem.signature == signature]
        families = [config.family for one in mine for config in one.configs.values()]
        of = f"whole calls of {mine[0].problem.server}"
        with tempfile.TemporaryDirectory(prefix="gemm_tuner_calls_") as folder:
            language = named((WORKLOAD.language, *WORKLOAD.other_languages(families)))
            cache = kernel_cache.folder(language.cache_name(templates), Path(folder))
            env = launcher_env(language, cache, {variable: devices.visible_gpu(device.target.backend, gpu, environ)})
            plan = write_plan(Path(folder), mine, templates, device)
            try:
                done = subprocess.run([*child, str(plan)], env=env, capture_output=True, text=True, timeout=LIMIT_S)
                said, ended = done.stdout, f"exit status {done.returncode}: {done.stderr.strip()[-200:]}"
                ended = ended if done.returncode else ""
            except subprocess.TimeoutExpired as error:
                said = error.stdout.decode() if isinstance(error.stdout, bytes) else error.stdout or ""
                ended = f"not done within {LIMIT_S:.0f} s"
        for line in said.splitlines():
            try:
                answer = json.loads(line)
            except ValueError:  # what ended the process cut it off
                continue
            if answer.get("us"):
                times[answer["problem"]] = answer["us"]
            if "fault" in answer:
                faults.append(f"{answer['problem']}: {answer['fault']}")
            faults += [f"{of} without {label}: {why}" for label, why in answer.get("left_out", {}).items()]
        faults += [f"{of}: {ended}"] if ended else []
    return times, list(dict.fromkeys(faults))


def write_plan(folder: Path, some: Sequence[Layer], templates: Path, device: Device) -> Path:
    """The child's plan, and the scripts that it names: one for each kernel."""
    by_family: dict[str, dict[str, Config]] = {}
    for config in (config for one in some for config in one.configs.values()):
        by_family.setdefault(config.family, {})[config.name] = config
    scripts = {
        family: codegen.write_script(templates, folder, family, some[0].problem, configs.values(), device.target)
        for family, configs in by_family.items()
    }
    work: list[dict[str, Any]] = [
        {
            "problem": one.problem.to_dict(),
            "configs": {label: [config.family, config.name] for label, config in one.configs.items()},
        }
        for one in some
    ]
    files = {family: str(folder / script.file) for family, script in scripts.items()}
    path = folder / "plan.json"
    path.write_text(json.dumps({"scripts": files, "work": work}), encoding="utf-8")
    return path


def lock_of(header: Mapping[str, Any], gpu: int) -> str | None:
    """The name of the lock of this machine's GPU of that number; None unless it is of the model that the results are
    of."""
    try:
        row = next((row for row in devices.look().gpus if row["id"] == gpu), None)
    except EnvironmentFault:
        return None
    if row is None or (row["name"], row["arch"]) != (header.get("device"), header.get("arch")):
        return None
    return devices.lock_name_here(row)


def report(
    results_file: Path, some: Sequence[Layer], templates: Path, device: Device, gpu: int, environ: Mapping[str, str],
    console: Console, out: Console, child: Sequence[str] = CHILD, held: AbstractContextManager[None] | None = None,
) -> None:  # fmt: skip
    """Times what is not known yet, keeps it, and prints all of it. held: holds the GPU's lock while it is used."""
    known = read(results_file)
    named = {one.problem.key: names_of(one) for one in some}
    left = [one for one in some if known.get(one.problem.key, {}).get("configs") != named[one.problem.key]]
    if left:
        print_line(console, f"timing whole calls, alignment to sum, of {len(left)} layers")
        try:
            with held or nullcontext():
                found, faults = timed(left, templates, device, gpu, environ, child)
        except gpu_lock.GpuInUse as error:
            found, faults = {}, [f"whole calls: {error.one_line()}"]
        known |= {key: {"us": us, "configs": timed_of(named[key], us)} for key, us in found.items()}
        write_text_atomically(path_of(results_file), json.dumps(known, indent=1) + "\n")
        for line in faults:
            print_line(console, line, "red")
    current = {key for key, names in named.items() if is_of(known.get(key, {}), names)}
    rows = [row_of(one.problem, known[one.problem.key]["us"]) for one in some if one.problem.key in current]
    if rows:
        titles = ("whole call", "M", *(f"{label} us" for label in LABELS), f"{DEFAULT}/\n{TUNED}")
        print_table(out, "", [Column(title, is_number=at > 0) for at, title in enumerate(titles)], rows)


def names_of(layer: Layer) -> dict[str, str]:
    """What the times of a layer are of: its configurations by label, and recorded routings."""
    names = {label: config.name for label, config in layer.configs.items()}
    files = [Path(path) for path in routing.files(layer.problem.routing)]
    return {**names, "routing": files_sha(files)} if files else names


def timed_of(names: Mapping[str, str], us: Mapping[str, float]) -> dict[str, str]:
    """``names_of`` without labels that have no time, so that these are timed by the next run that can."""
    return {label: name for label, name in names.items() if label in us or label not in LABELS}


def is_of(kept: Mapping[str, Any], names: Mapping[str, str]) -> bool:
    """Whether what is kept of a layer is of these ``names_of`` it, but for labels without a time."""
    configs: Mapping[str, str] = kept.get("configs", {})
    return bool(configs) and configs.items() <= names.items()


def row_of(problem: MoeProblem, us: Mapping[str, float]) -> list[str]:
    layer = f"{problem.server} E={problem.E} N={problem.N} K={problem.K}"
    ratio = f"{us[DEFAULT] / us[TUNED]:.3f}" if us.get(DEFAULT) and us.get(TUNED) else ""
    return [layer, str(problem.M), *(f"{us[label]:.2f}" if label in us else "" for label in LABELS), ratio]

"""Identifies runs. The job key (what is tuned) names the run's folder; the fingerprint (how it is tuned) must not
change when a run is resumed."""

from __future__ import annotations

import hashlib
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gemm_tuner import __version__
from gemm_tuner.core.records import Config, Problem
from gemm_tuner.core.workload import workload_of
from gemm_tuner.pipeline.prepare import Environment
from gemm_tuner.pipeline.run_options import RunOptions
from gemm_tuner.system.installation import PACKAGE
from gemm_tuner.system.source_hash import files_sha, sources_sha

KEY_DIGITS = 8
OLDER = "older configurations"
SOURCES = ("**/*.py",)
# In addition to the templates: sources that generate, compile and read kernels.
KERNEL_SOURCES = (
    "source/",
    "compile/",
    "languages/",
    "consumers/consumer_kernel.py",
    "gemm/descriptors.py",
    "kernels/taken.py",
    "moe/",
)
# Sources that cannot change a time or a choice. All other sources of the package are part of the fingerprint.
NOT_TIMING = (
    *("cli/", "export/", "report/", "gemm/size_sources/", "measure/machine_check/"),
    *("core/labels.py", "gemm/short_forms.py"),
    *(
        "pipeline/compile_only.py",
        "pipeline/explain.py",
        "pipeline/idle_flags.py",
        "pipeline/preview.py",
        "pipeline/run_end.py",
        "pipeline/run_log.py",
    ),
    *("pipeline/show.py", "store/run_record.py"),
    *("system/bug_report.py", "system/program.py", "system/progress.py", "system/terminal_table.py"),
)


def job_key(options: RunOptions, source: str, task: str) -> str:
    """A hash of the job: the task, the sizes in order, the requested architecture, and where results go."""
    digest = hashlib.sha256(f"{task}\n".encode())
    for part in (*(entry.problem.key for entry in options.entries), options.arch, source, options.results_file):
        digest.update(f"{part}\n".encode())
    return digest.hexdigest()[:KEY_DIGITS]


def fingerprint(options: RunOptions, environment: Environment, profiler: str) -> dict[str, Any]:
    """Everything that must be equal for two timings to be comparable, by a readable name."""
    machine, device = environment.machine, environment.device
    space = options.space_file
    return {
        "device": f"{device.name}, {device.num_sms} SMs",
        "architecture": device.target.arch,
        "driver": machine.driver,
        **{f"version of {name}": version for name, version in sorted(machine.versions.items())},
        "version of the tuner": __version__,
        "profiler": profiler,
        "kernel source": f"{sources_sha(options.templates_dir, ('*.j2',))} "
        f"{sources_sha(PACKAGE, SOURCES, only=KERNEL_SOURCES)}{of_kind(options)}",
        "timing code": sources_sha(PACKAGE, SOURCES, but=(*NOT_TIMING, *KERNEL_SOURCES)),
        **({} if environment.recording else options.language.identity(os.environ)),
        "rules": sources_sha(options.rules_dir, ("*.py", "*.yaml")),
        "space": sources_sha(space.parent, (space.name,)) if space else "",
        **({} if environment.source == "predicted" else {"search": options.search}),
        "heuristics": options.heuristics,
        "families": ", ".join(options.families),
        "servers": ", ".join(options.serve),
        **{f"kernel of {name}": kernel.label for name, kernel in sorted(options.kernels.items())},
        "method": method(options, is_timed=environment.source == "measured"),
        "checks": options.compare,
        "samples that decide, of 1 2 3": deciding(options),
        **files_read(options),
        OLDER: older_text(options.older, options.min_improvement_pct),
    }


def method(options: RunOptions, *, is_timed: bool) -> str:
    """How kernels are timed and checked, as far as it has an effect: see ``idle_flags``."""
    seed = f"seed {options.seed}"
    if not is_timed:
        return f"{options.finalists} finalists, {seed}"
    return (
        f"{options.screen_calls} screening calls, {options.iters} rounds of {options.finalists} finalists, "
        f"warmup {options.warmup}, init_type {options.init_type}, {seed}, rotating_tensor {options.rotating_mib}"
    )


def files_read(options: RunOptions) -> dict[str, str]:
    """A hash of the content of each file that a problem names."""
    workload = workload_of(options.kind)
    paths = sorted({path for entry in options.entries for path in workload.files_of(entry.problem)})
    return {f"content of {path}": files_sha([Path(path)]) for path in paths}


def deciding(options: RunOptions) -> str:
    """Which of three samples in turn decide, by the kind of problem and what its problems ask for."""
    workload, samples = workload_of(options.kind), (1.0, 2.0, 3.0)
    found = {workload.deciding(entry.problem, samples) for entry in options.entries}
    return ", ".join(" ".join(f"{one:g}" for one in each) for each in sorted(found))


def of_kind(options: RunOptions) -> str:
    """Identifies the sources of a kind of problem from outside this package; "" for a kind of this package."""
    workload = workload_of(options.kind)
    folder = workload.templates_dir
    return f" {sources_sha(folder.parent, ('**/*.py', '**/*.j2'))}" if folder is not None else ""


def gpu_labels(environment: Environment) -> list[str]:
    """A unique label for each GPU of a run: its UUID, else its PCI address and this machine."""
    if environment.recording:
        more = (f"recording, GPU {gpu}" for gpu in environment.gpus[1:])
        return ["recording", *more]
    rows = [(gpu, environment.machine.gpu(gpu)) for gpu in environment.gpus]
    return [str(row.get("uuid") or f"{socket.gethostname()} {row.get('pci') or gpu}") for gpu, row in rows]


def older_text(older: Mapping[Problem, Config], improvement_pct: float) -> str:
    """The part of a fingerprint for the configurations of --update; "" for none."""
    return f"{configs_sha(older)}, to be beaten by {improvement_pct:g} %" if older else ""


def configs_sha(configs: Mapping[Problem, Config]) -> str:
    """12 hex digits over the configurations of all sizes."""
    names = sorted((problem.key, config.name) for problem, config in configs.items())
    return hashlib.sha256(repr(names).encode()).hexdigest()[:12]


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """A sentence for each difference between two fingerprints."""
    names = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    return [f"{name} was {_shown(before, name)} and is {_shown(now, name)}" for name in names]


def _shown(values: Mapping[str, Any], name: str) -> str:
    return repr(values[name]) if name in values else "not set"

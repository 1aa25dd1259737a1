"""Which profilers time a run on a cluster: those that all machines with its GPUs have, in the same version."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from gemm_tuner.pipeline.cluster_work import FoundGpu, like_most
from gemm_tuner.pipeline.run_options import IN_PROCESS, RunOptions
from gemm_tuner.profilers import AUTO, AUTO_ORDER
from gemm_tuner.system.terminal_table import print_line


def common(gpus: Sequence[FoundGpu]) -> dict[str, str]:
    """The profilers that all machines have in the same version, with that version."""
    first = gpus[0].profilers if gpus else {}
    return {name: version for name, version in first.items() if all(gpu.profilers.get(name) == version for gpu in gpus)}


def fit(gpus: Sequence[FoundGpu], options: RunOptions, console: Console) -> list[FoundGpu]:
    """The GPUs of a model that can take part, by the profilers of their machines; a line for each other one, which is
    left out: its machine lacks one that is asked for, or has another version than most.

    Where none is asked for, it is the first that all have; a line says so if some have a better one. All GPUs where no
    machine has what is asked for.
    """
    if not gpus or gpus[0].recording:
        return list(gpus)
    names = [name for name in (options.profiler, options.screen_with) if name not in (AUTO, IN_PROCESS)]
    able = [gpu for gpu in gpus if all(name in gpu.profilers for name in names)]
    if not able:
        return list(gpus)
    for gpu in gpus:
        if gpu not in able:
            gpu.station.kill()
            lacks = ", ".join(name for name in names if name not in gpu.profilers)
            print_line(console, f"{gpu.station.name} is left out: its machine has no {lacks}")
    if options.profiler == AUTO:
        names += first_of_all(able, console)
    kept = like_most(able, lambda gpu: ", ".join(f"{name} {gpu.profilers[name]}" for name in names), console)
    return kept if len(kept) == len(gpus) else fit(kept, options, console)  # those left may have a better one


def first_of_all(gpus: Sequence[FoundGpu], console: Console) -> list[str]:
    """The profiler that a run takes by default, if there is one that all machines have."""
    order = AUTO_ORDER[gpus[0].backend]
    found = [name for name in order if all(name in gpu.profilers for gpu in gpus)][:1]
    best = next((name for name in order if any(name in gpu.profilers for gpu in gpus)), "")
    if found and best not in found:
        hosts = ", ".join(dict.fromkeys(gpu.host for gpu in gpus if best not in gpu.profilers))
        print_line(console, f"kernels are timed under {found[0]}, since {best} is not installed on {hosts}")
    return found

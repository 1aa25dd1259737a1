"""Finds flags of a run that have no effect, with a line for each that says why."""

from __future__ import annotations

from dataclasses import replace

from gemm_tuner.core.workload import workload_of
from gemm_tuner.pipeline.run_options import RunOptions

_TIMING = ("screen_with", "starts_per_round", "warmup", "iters", "rotating_tensor", "init_type", "launch_limit")
_WAITING = ("wait", "no_wait")
_WITHOUT_A_GPU = ("search", "budget", *_TIMING, *_WAITING, "no_compile_stage")
_COMPILE_ONLY = (*_WITHOUT_A_GPU, "profiler", "output", "compare", "update", "validate_key", "serve", "seed")
_CHOICE = ("search", "families", "serve", "no_heuristics", "starts_per_round")
# The options that flags about operands have another name in.
_OPTION_OF = {"rotating_tensor": "rotating_mib"}


def of_run(options: RunOptions, source: str, task: str = "") -> list[str]:
    """Lines about flags that have no effect in a run.

    source: of its times: measured, replayed or predicted. task: --benchmark, --compare_wo_tuning or
    --compile_only; empty for tuning.
    """
    why: dict[str, str] = {}
    if task == "--compile_only":
        why.update(dict.fromkeys(_COMPILE_ONLY, f"{task} compiles what the rules keep, and runs nothing"))
    elif task:
        why.update(dict.fromkeys(_CHOICE, f"{task} takes the configurations of the file"))
        if task == "--compare_wo_tuning":
            why["kernel_from"] = "the configurations of the sizes themselves are checked"
    if source == "predicted":
        why.update(dict.fromkeys(_WITHOUT_A_GPU, "without a GPU nothing is timed"))
    elif source == "replayed":
        why.update(dict.fromkeys((*_TIMING, *_WAITING), "a replay times nothing"))
    why.update(workload_of(options.kind).idle_flags)
    if options.update_file is None:
        why["min_improvement"] = "it is about --update, which is not given"
    return [f"{options.given[name]} changes nothing: {why[name]}" for name in why if name in options.given]


def without_idle(options: RunOptions) -> RunOptions:
    """The options with the defaults of flags that the kind of problem ignores, so that headers say what was done."""
    fields = [_OPTION_OF.get(flag, flag) for flag in workload_of(options.kind).idle_flags]
    return replace(options, **{field: getattr(RunOptions, field) for field in fields})

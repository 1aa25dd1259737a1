"""Finds flags on the command line that have no effect, with a line for each that says why."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any

from gemm_tuner.core.errors import UserError
from gemm_tuner.gemm.problem_keys import Defaults
from gemm_tuner.pipeline.settings import Settings
from gemm_tuner.store.sizes import Loaded, SizeEntry, sizes_of

# Two values of each flag that applies to all sizes, to try a value other than the given one.
_VALUES: dict[str, tuple[Any, Any]] = {
    **dict.fromkeys(("dtype", "dtype_a", "dtype_b", "dtype_c"), ("fp16", "bf16")),
    **dict.fromkeys(("layout_a", "layout_b"), ("row", "col")),
    **dict.fromkeys(("col_a", "col_b", "bias"), (True, False)),
    **dict.fromkeys(("alpha", "beta"), (1.0, 2.0)),
    "batch": (1, 2),
    "activation": ("none", "relu"),
    "scaling": ("none", "tensor"),
    "precision": ("ieee", "tf32"),
}
_TIMING = ("screen_with", "starts_per_round", "warmup", "iters", "rotating_tensor", "init_type", "launch_limit")
_WAITING = ("wait", "no_wait")
_WITHOUT_A_GPU = ("search", "budget", *_TIMING, *_WAITING, "no_compile_stage")
_COMPILE_ONLY = (*_WITHOUT_A_GPU, "profiler", "output", "compare", "update", "validate_key", "serve", "seed")
_CHOICE = ("search", "families", "serve", "no_heuristics", "starts_per_round")


def of_sizes(
    arguments: argparse.Namespace,
    loaded: Loaded,
    entries: Sequence[SizeEntry],
    defaults_from: Callable[[argparse.Namespace], Defaults],
) -> list[str]:
    """Lines about flags for sizes that have no effect, because every entry of the file has its own value.

    entries: the sizes with all flags as given. defaults_from: converts flags to default values of entries.
    """
    lines = []
    for name in sorted(_VALUES.keys() & arguments.given):
        other = next(value for value in _VALUES[name] if value != getattr(arguments, name))
        try:
            same = sizes_of(loaded, defaults_from(argparse.Namespace(**{**vars(arguments), name: other}))).entries
        except UserError:  # with another value an entry is invalid, so the flag has an effect
            continue
        if tuple(same) == tuple(entries):
            lines.append(f"{arguments.given[name]} changes nothing: every entry of {loaded.name} says it itself")
    return lines


def of_run(settings: Settings, source: str, task: str = "") -> list[str]:
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
    if settings.update_file is None:
        why["min_improvement"] = "it is about --update, which is not given"
    return [f"{settings.given[name]} changes nothing: {why[name]}" for name in why if name in settings.given]

"""A process that is started with a PLAN: times whole calls of fused MoE layers on the current GPU.

PLAN is JSON: {"scripts": {family: file}, "work": [{"problem": {...}, "configs": {label: [family, name]}}, ...]}. Prints
a line of JSON for each work: {"problem": key, "us": {label: median microseconds}} or {"problem": key, "fault": text}.
Either has "left_out", {label: reason}: those whose script cannot be loaded, such as without its library.

Each call is a CUDA graph between two events of the stream, after enough reads of a buffer larger than L2 that the host
is ahead. The configurations of a work take turns.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from types import ModuleType
from typing import Any

from gemm_tuner.core.markers import FLUSH_SYMBOL
from gemm_tuner.core.workload import problem_from_dict
from gemm_tuner.languages.scripts import load_script
from gemm_tuner.languages.triton.language import LANGUAGE
from gemm_tuner.moe import launchers, operands, whole_call, whole_call_sorted
from gemm_tuner.moe.cute import CUTE
from gemm_tuner.moe.problem import MoeProblem
from gemm_tuner.moe.workload import WORKLOAD
from gemm_tuner.system.processes import exit_with_tuner

ROUNDS = 30
FLUSHES = 4
FLUSH_L2_TIMES = 2


def main(argv: Sequence[str]) -> int:
    import torch

    exit_with_tuner()
    plan = json.loads(Path(argv[0]).read_text(encoding="utf-8"))
    scripts, absent = loaded(plan["scripts"])
    l2_bytes = torch.cuda.get_device_properties(0).L2_cache_size
    flush = LANGUAGE.support_calls(FLUSH_L2_TIMES * l2_bytes, "cuda")[FLUSH_SYMBOL]
    for work in plan["work"]:
        problem = problem_from_dict(work["problem"])
        assert isinstance(problem, MoeProblem)
        left_out = {label: absent[family] for label, (family, _) in work["configs"].items() if family in absent}
        configs = {label: one for label, one in work["configs"].items() if label not in left_out}
        found: dict[str, Any]
        try:
            found = {"us": times_us(problem, scripts, configs, flush) if configs else {}}
        except Exception as error:
            found = {"fault": said(error)}
        print(json.dumps({"problem": problem.key, **found, "left_out": left_out}), flush=True)
        torch.cuda.synchronize()  # raises where the context is lost, for all works
        torch.cuda.empty_cache()
    return 0


def loaded(files: Mapping[str, str]) -> tuple[dict[str, ModuleType], dict[str, str]]:
    """(scripts by family, why others cannot be loaded). files: by family."""
    scripts: dict[str, ModuleType] = {}
    absent: dict[str, str] = {}
    for family, file in files.items():
        try:
            scripts[family] = load_script(file)
        except Exception as error:
            absent[family] = said(error)
    return scripts, absent


def said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:300]


def times_us(
    problem: MoeProblem,
    scripts: Mapping[str, ModuleType],
    configs: Mapping[str, tuple[str, str]],
    flush: Callable[[], None],
) -> dict[str, float]:
    """The median over ROUNDS calls on each draw of the routing."""
    sets = operands.make(problem, 0, "cuda")

    def made(script: ModuleType, name: str, one: operands.MoeOperands) -> whole_call.WholeCall:
        config = script.CONFIGS[name]
        make = whole_call_sorted.made if launchers.of_config(problem, config) is CUTE else whole_call.made
        return make(WORKLOAD, script, config, one)

    calls = {
        label: [whole_call.captured(made(scripts[family], name, one)) for one in sets]
        for label, (family, name) in configs.items()
    }
    return timed(calls, flush)


def timed(calls: Mapping[str, Sequence[Callable[[], None]]], flush: Callable[[], None]) -> dict[str, float]:
    import torch

    order, dice = list(calls), random.Random(0)
    events: dict[str, list[tuple[Any, Any]]] = {label: [] for label in order}
    for turn in range(ROUNDS):
        dice.shuffle(order)
        for label in order:
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            for _ in range(FLUSHES):
                flush()
            begin.record()
            calls[label][turn % len(calls[label])]()
            end.record()
            events[label].append((begin, end))
        torch.cuda.synchronize()
    return {label: round(median(a.elapsed_time(b) for a, b in some) * 1e3, 3) for label, some in events.items()}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

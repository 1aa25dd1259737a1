"""``tune_gemm.py moe --benchmark`` and ``--compare_wo_tuning``: the configurations of a results file, each with the
kernel that it is of."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import replace

from gemm_tuner.cli.commands import Consoles
from gemm_tuner.cli.moe_layer import forget_servers, is_size_file, refuse_what_a_file_says, require_one_kernel
from gemm_tuner.core.errors import UserError
from gemm_tuner.gemm.problem import GemmProblem
from gemm_tuner.gemm.problem_keys import Defaults
from gemm_tuner.kernels.taken import TakenKernel
from gemm_tuner.moe import kernel_source
from gemm_tuner.moe.own import NAME
from gemm_tuner.moe.problem import MoeProblem
from gemm_tuner.store.sizes import SizeEntry, load_file, sizes_of

# The flags that ask for it, and those that have no effect on what a row says.
TASKS = ("benchmark", "compare_wo_tuning")
OF_A_ROW = ("routing", "seeds", "current")


def is_asked(arguments: argparse.Namespace) -> bool:
    return any(getattr(arguments, task) for task in TASKS)


def run_again(arguments: argparse.Namespace, shown: Consoles) -> int:
    """Times or checks what a results file has, GEMMs first; returns the exit status."""
    from gemm_tuner.cli.main import run

    parts = entries(arguments)
    forget_servers(arguments)
    arguments.gemm_size_file = str(arguments.source)  # which -o must not name
    return max(run(arguments, shown, part) for part in parts if part)


def entries(arguments: argparse.Namespace) -> tuple[tuple[SizeEntry, ...], tuple[SizeEntry, ...]]:
    """(GEMMs, fused MoE layers) of the results file of --from that have a configuration. Raises UserError for a file
    without such layers, for a missing kernel, and for flags about what the rows say."""
    flag = next(f"--{task}" for task in TASKS if getattr(arguments, task))
    accepted = "--from FILE.yaml, a results file of moe"
    if not is_size_file(arguments.source):
        raise UserError("is about the configurations of a results file", where=flag, accepted=accepted)
    refuse_what_a_file_says(arguments, *OF_A_ROW)
    found = [one for one in sizes_of(load_file(str(arguments.source)), Defaults()).entries if one.config is not None]
    layers = [(one, one.problem) for one in found if isinstance(one.problem, MoeProblem)]
    if not layers:
        what = "has no fused MoE layer with a configuration"
        raise UserError(what, where=str(arguments.source), accepted=accepted)
    require_one_kernel([layer for _, layer in layers], arguments.source, "keep the rows of one kind")
    kernels = kernel_source.read_all(arguments.kernel_from, grouped=layers[0][1].grouped)
    dense = tuple(one for one in found if isinstance(one.problem, GemmProblem))
    return dense, tuple(replace(one, problem=with_kernel(layer, kernels)) for one, layer in layers)


def with_kernel(layer: MoeProblem, kernels: Mapping[str, TakenKernel]) -> MoeProblem:
    """A layer of a row, with its server's kernel. Raises UserError without it."""
    if layer.server == NAME:
        return layer
    kernel = kernels.get(layer.server)
    if kernel is None:
        raise kernel_source.none_given(layer.server)
    return replace(layer, kernel=kernel, kernel_sha=kernel.sha)

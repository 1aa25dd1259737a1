"""What ``gt.AutoTuner`` does for a @triton.jit kernel: one launch, its options, and compilation for other targets."""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from gemm_tuner.core.errors import UserError
from gemm_tuner.core.records import Status
from gemm_tuner.measure import probe
from gemm_tuner.measure.device import DEFAULT_ARCH
from gemm_tuner.surface import fingerprints
from gemm_tuner.surface.autotune_result import AutotuneResult, origin_of
from gemm_tuner.surface.configurations import LAUNCH_OPTIONS, Candidate
from gemm_tuner.surface.par_compile import Compiled, par_compile
from gemm_tuner.surface.profile_args import CompileArgs
from gemm_tuner.surface.records import NoBestKernel
from gemm_tuner.surface.tunables import Arguments, Kernel, is_jit
from gemm_tuner.system.cores import usable_cores
from gemm_tuner.system.documents import show
from gemm_tuner.system.values import did_you_mean

AUTO, METAL = "auto", "metal"
# The architectures that TileLang's names of a target mean where no GPU of theirs is.
ARCH_OF = {"cuda": DEFAULT_ARCH, "hip": "gfx942"}
NOT_SHOWN = ("config", "artifact")


def kernel_of(bound: functools.partial[Any], grid: Any) -> Kernel | None:
    """The launch of a Triton kernel with bound arguments; None for another function, which has no grid.

    Raises UserError for a grid of such a function.
    """
    if is_jit(bound.func):
        return Kernel(bound.func, grid, Arguments(bound.args, bound.keywords))
    if grid is not None:
        raise UserError("is given for a function that is no Triton kernel", where="grid", hint="leave it out")
    return None


def require_grid(kernel: Kernel) -> None:
    if kernel.grid is None:
        hint = "AutoTuner.from_kernel(kernel, configs, grid), as in kernel[grid]"
        raise UserError("has no grid", where=kernel.name, hint=hint)


def with_options(candidates: Sequence[Candidate], args: CompileArgs, kernel: Kernel) -> list[Candidate]:
    """The candidates with the launch options of ``set_compile_args``; a candidate's own value stays.

    Raises UserError for a name that is no option.
    """
    options = dict(args.options or {})
    for name in options:
        if name not in LAUNCH_OPTIONS:
            where, hint = f"options of {kernel.name}", did_you_mean(name, LAUNCH_OPTIONS)
            raise UserError(f"{show(name)} is no option", where=where, accepted=", ".join(LAUNCH_OPTIONS), hint=hint)
    return [replace(one, values={**options, **one.values}) for one in candidates]


def other_target(target: Any) -> str:
    """The architecture to compile for; "" if it is that of this machine's GPU, or of Triton's interpreter."""
    named = str(target)
    if named == METAL:
        raise UserError("Triton has no such target", where=METAL, accepted="auto, cuda, hip, sm_90, gfx942, ...")
    if named == AUTO or (named in ARCH_OF and os.environ.get("TRITON_INTERPRET") == "1"):
        return ""
    here = [str(gpu["arch"]) for gpu in probe.gpus()]
    arch = ARCH_OF.get(named, named)
    is_here = any(one.startswith(arch[:2]) for one in here) if named in ARCH_OF else arch in here
    return "" if is_here else arch


def compiled_for(
    kernel: Kernel, candidates: Sequence[Candidate], target: str, tensors: Sequence[Any] | None
) -> AutotuneResult:
    """The result of compiling the candidates, in their order. tensors: of ``set_autotune_inputs``.

    Raises NoBestKernel, with the first reason, if none compiles.
    """
    call = kernel.call if tensors is None else kernel.call.with_tensors(tensors)
    configs = [one.values for one in candidates]
    found = par_compile(kernel.function, configs, kernel.named(call), target, min(len(configs), usable_cores()))
    if all(one.status is not Status.OK for one in found):
        raise NoBestKernel(f"none compiles for {target}: {found[0].reason}", where=kernel.name)
    return AutotuneResult(
        func=kernel.function,
        table=[_row(one) for one in found],
        source=fingerprints.source_of(kernel.function),
        origin=origin_of(kernel.function, call),
    )


def _row(compiled: Compiled) -> dict[str, Any]:
    facts = {name: value for name, value in asdict(replace(compiled, artifact=None)).items() if name not in NOT_SHOWN}
    return {**compiled.config, **facts, "status": compiled.status.value}

"""Converts the result of tuning to an AutotuneResult."""

from __future__ import annotations

from typing import Any

from gemm_tuner.surface import fingerprints
from gemm_tuner.surface.autotune_result import AutotuneResult, binaries_of, origin_of
from gemm_tuner.surface.learned import REFERENCE
from gemm_tuner.surface.records import Tuned
from gemm_tuner.surface.tunables import Arguments, TunedKernel


def result_of(tuned: Tuned, function: Any, call: Arguments | None = None) -> AutotuneResult:
    """The AutotuneResult. Raises NoBestKernel, with the most common reason, if no configuration was correct."""
    winner, kernel = tuned.winner, tuned.kernel
    reference = next((row.us for row in tuned.rows if row.baseline and row.name == REFERENCE), None)
    compiled = kernel.compiled if isinstance(kernel, TunedKernel) else None
    return AutotuneResult(
        latency=None if winner.us is None else winner.us / 1e3,
        config=dict(winner.config),
        ref_latency=None if reference is None else reference / 1e3,
        libcode=_generated(kernel, compiled),
        func=getattr(kernel, "prim_func", function),
        kernel=kernel,
        table=tuned.table,
        source=fingerprints.source_of(function),
        origin=origin_of(function, call or Arguments()),
        binaries=binaries_of(compiled),
    )


def _generated(kernel: Any, compiled: Any) -> str:
    """The generated source: CUDA or HIP for TileLang, assembly for Triton."""
    if callable(getattr(kernel, "get_kernel_source", None)):
        return str(kernel.get_kernel_source())
    texts = {name: one for name, one in binaries_of(compiled).items() if name in ("ptx", "amdgcn")}
    return next(iter(texts.values())).decode() if texts else ""

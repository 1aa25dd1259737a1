"""``gt.AutoTuner``: tunes a factory of kernels or a Triton kernel, with the interface of TileLang's AutoTuner."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gemm_tuner.core.errors import UserError
from gemm_tuner.store.run_folder import DEFAULT_OUTPUT_DIR
from gemm_tuner.surface import configurations, result_cache, triton_tuning
from gemm_tuner.surface.autotune_result import AutotuneResult
from gemm_tuner.surface.clocks import Clock
from gemm_tuner.surface.fingerprints import NoFingerprint
from gemm_tuner.surface.profile_args import CompileArgs, ProfileArgs
from gemm_tuner.surface.results_of_tuning import result_of
from gemm_tuner.surface.supply import TensorSupplyType, given_inputs
from gemm_tuner.surface.tunables import Arguments, Function, Tunable
from gemm_tuner.surface.tuning import Tuning

NOT_USED = "is TileLang's way of working, which changes no result: it is not used here"


class AutoTuner:
    """Tunes ``function(**config)``, which returns a kernel, or a TileLang program that is then compiled.

    A @triton.jit kernel is tuned for one launch: ``AutoTuner.from_kernel(partial(kernel, x, out, n), configs, grid)``.
    Setters return the tuner: ``AutoTuner.from_kernel(f, configs).set_profile_args(ref_prog=f_reference).run()``.
    """

    def __init__(self, function: Callable[..., Any], configs: Any, grid: Any = None) -> None:
        self.function: Callable[..., Any] = getattr(function, "__wrapped__", function)
        self.configs, self.grid = configs, grid
        self.profile_args = ProfileArgs()
        self.compile_args = CompileArgs()

    @classmethod
    def from_kernel(cls, kernel: Callable[..., Any], configs: Any, grid: Any = None) -> AutoTuner:
        """kernel: the factory, or a @triton.jit kernel; bind arguments that are not tuned with ``functools.partial``.
        configs: as for ``gt.autotune``; if it is a function, it gets the bound arguments. grid: of a Triton kernel, as
        in ``kernel[grid]``; not needed to compile for another target."""
        return cls(kernel, configs, grid)

    def set_profile_args(
        self,
        warmup: int = 25,
        rep: int = 100,
        timeout: float = 30,
        supply_type: TensorSupplyType = TensorSupplyType.Auto,
        ref_prog: Callable[..., Any] | None = None,
        supply_prog: Callable[..., Sequence[Any]] | None = None,
        rtol: float = 1e-2,
        atol: float = 1e-2,
        max_mismatched_ratio: float = 0.01,
        skip_check: bool = False,
        manual_check_prog: Callable[..., Any] | None = None,
        cache_input_tensors: bool = False,
        backend: str | Clock = "auto",
    ) -> AutoTuner:
        """Sets how candidates are timed and checked; see ``ProfileArgs``."""
        self.profile_args = ProfileArgs(
            warmup, rep, timeout, supply_type, ref_prog, supply_prog, rtol, atol, max_mismatched_ratio, skip_check,
            manual_check_prog, cache_input_tensors, backend,
        )  # fmt: skip
        return self

    def set_compile_args(
        self,
        out_idx: Sequence[int] | int | None = None,
        target: Any = None,
        execution_backend: str | None = None,
        target_host: Any = None,
        verbose: bool | None = None,
        pass_configs: Mapping[str, Any] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> AutoTuner:
        """Sets compile options for TileLang programs that the factory returns uncompiled.

        For a Triton kernel only target and options. target: auto, cuda, hip, or an architecture such as sm_90 or
        gfx942; for another one than this machine's GPU, ``run`` compiles and times nothing. options: of a launch, such
        as {"num_warps": 8}, for configurations that do not set them.
        """
        self.compile_args = CompileArgs(
            out_idx, target or "auto", execution_backend or "auto", target_host, bool(verbose), pass_configs, options
        )
        return self

    def run(
        self,
        warmup: int | None = None,
        rep: int | None = None,
        timeout: float | None = None,
        use_pipeline: bool = False,
        enable_grouped_compile: bool = False,
        group_compile_size: int = 2,
        benchmark_devices: Sequence[int] | None = None,
        benchmark_multi_gpu: bool = False,
        early_stop: bool = False,
        early_stop_factor: float = 2.0,
        *,
        cache_results: bool = True,
        isolate: bool | None = None,
        profiler: str = "",
        output_dir: Path | str | None = DEFAULT_OUTPUT_DIR,
    ) -> AutotuneResult:
        """Tunes, or returns the cached result of an earlier process.

        warmup, rep, timeout: by default those of ``set_profile_args``. early_stop: stop timing a configuration that
                              takes
        ``early_stop_factor`` times the best time. isolate, profiler: as for ``gt.autotune``.
        A Triton kernel whose target is not this machine's GPU is compiled only: ``table`` has registers, spills and
        shared memory by configuration; there is no latency and no kernel, and ``config`` is empty.
        Raises UserError, and NoBestKernel if no configuration ran and was correct.
        """
        for name, asked in (
            ("use_pipeline", use_pipeline), ("enable_grouped_compile", enable_grouped_compile),
            ("benchmark_multi_gpu", benchmark_multi_gpu or benchmark_devices),
        ):  # fmt: skip
            if asked:
                warnings.warn(f"{name} {NOT_USED}", stacklevel=2)
        default = self.profile_args
        profile = replace(
            default,
            warmup=default.warmup if warmup is None else warmup,
            rep=default.rep if rep is None else rep,
            timeout=default.timeout if timeout is None else timeout,
            early_stop=early_stop,
            early_stop_factor=early_stop_factor,
        )
        profiler = profiler or profile.profiler
        bound = self.function if isinstance(self.function, functools.partial) else functools.partial(self.function)
        kernel = triton_tuning.kernel_of(bound, self.grid)
        tunable: Tunable = kernel or Function(self.function, Arguments(), self.compile_args)
        bind = f"give the factory itself, with other arguments bound: functools.partial({tunable.name}, ...)"
        candidates = configurations.candidates(self.configs, tunable.parameters, bound.args, bound.keywords, bind)
        if isinstance(tunable, Function) and (unset := tunable.without_value(candidates)):
            raise UserError(f"has no value for {', '.join(unset)}", where=tunable.name, hint=bind)
        tensors = given_inputs()
        function, call = self.function, Arguments()
        if kernel is not None:
            candidates = triton_tuning.with_options(candidates, self.compile_args, kernel)
            if target := triton_tuning.other_target(self.compile_args.target):
                return triton_tuning.compiled_for(kernel, candidates, target, tensors)
            triton_tuning.require_grid(kernel)
            function, call = kernel.function, kernel.call
        elif self.compile_args.options:
            raise UserError("are of a Triton launch", where="options", hint="give TileLang's as pass_configs")
        kept_as = None
        if cache_results:
            result_cache.warn_if_disabled(tunable.name, stacklevel=2)
            others = {"given": tensors, "compile": self.compile_args, "profiler": profiler, "grid": self.grid}
            try:
                kept_as = result_cache.key(function, call, candidates, profile, others)
            except NoFingerprint as error:
                warnings.warn(f"the result is not kept for later processes: {error}", stacklevel=2)
        if kept_as and (kept := result_cache.kept(kept_as, candidates)):
            return kept[1].built(function, self.compile_args)
        tuning = Tuning(tunable, profile, tensors, output_dir=output_dir, isolate=isolate, profiler=profiler)
        result = result_of(tuning.tune(candidates), function, call)
        if kept_as:
            result_cache.keep(kept_as, result)
        return result

    __call__ = run

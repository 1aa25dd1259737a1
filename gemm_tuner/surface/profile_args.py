"""How candidates of an autotuned function are compiled, timed and checked; names are those of TileLang."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gemm_tuner.core.errors import UserError
from gemm_tuner.surface.clocks import CLOCKS, Clock, UserClock
from gemm_tuner.surface.configurations import PASS_CONFIGS
from gemm_tuner.surface.records import Effort
from gemm_tuner.surface.supply import Supply, TensorSupplyType

# TileLang's names of clocks -> equivalent clocks of this project.
BACKENDS = {"auto": "auto", "event": "events", "cupti": "proton", "cudagraph": "proton"}
EXTERNAL = ("nsys", "ncu", "rocprofv3", "rocprof")
# Maximum number of timed calls per configuration before the finals.
MOST_SCREEN_CALLS = 10
# The median, and the other quantiles that triton.autotune requests.
QUANTILES = (0.5, 0.2, 0.8)
DoBench = Callable[..., Any]


@dataclass(frozen=True)
class ProfileArgs:
    """How candidates are timed and checked.

    ref_prog:  gets the inputs; returns the expected outputs, or whether the outputs among its inputs are right, or
               raises. None: configurations are compared with each other.
    max_mismatched_ratio: the share of elements that may be outside of rtol and atol.
    manual_check_prog: gets the outputs, and the expected ones where it takes two arguments; raises for wrong ones.
    cache_input_tensors: all configurations get the same tensors; otherwise each gets equal ones.
    backend:   auto, event, cupti, cudagraph, or a clock or its name. cupti and cudagraph measure kernels without their
               launches: proton. nsys, ncu, rocprofv3 and rocprof have the finals in processes of their own.
    do_bench:  a function of yours that times: gets a call and ``quantiles``, returns milliseconds.
    """

    warmup: int = 25
    rep: int = 100
    timeout: float = 30
    supply_type: TensorSupplyType = TensorSupplyType.Auto
    ref_prog: Callable[..., Any] | None = None
    supply_prog: Callable[..., Sequence[Any]] | None = None
    rtol: float = 1e-2
    atol: float = 1e-2
    max_mismatched_ratio: float = 0.01
    skip_check: bool = False
    manual_check_prog: Callable[..., Any] | None = None
    cache_input_tensors: bool = False
    backend: str | Clock = "auto"
    early_stop: bool = False
    early_stop_factor: float = 2.0
    do_bench: DoBench | None = None

    def __post_init__(self) -> None:
        """Raises UserError for invalid values."""
        for name, least in (("warmup", 0), ("rep", 1), ("timeout", 0), ("rtol", 0), ("atol", 0)):
            if not getattr(self, name) >= least:
                raise UserError(f"is {getattr(self, name)}", where=name, accepted=f"{least} or more")
        if not 0 <= self.max_mismatched_ratio <= 1:
            raise UserError(f"is {self.max_mismatched_ratio}", where="max_mismatched_ratio", accepted="from 0 to 1")
        if self.early_stop and not self.early_stop_factor >= 1:
            raise UserError(f"is {self.early_stop_factor}", where="early_stop_factor", accepted="1 or more")
        if isinstance(self.backend, str) and self.backend not in (*BACKENDS, *CLOCKS, *EXTERNAL):
            accepted = ", ".join(dict.fromkeys([*BACKENDS, *CLOCKS, *EXTERNAL]))
            raise UserError(f"there is no {self.backend!r}", where="backend", accepted=accepted)

    def supply(self, given: tuple[Any, ...] | None) -> Supply:
        return Supply(self.supply_type, self.supply_prog, given)

    def effort(self) -> Effort:
        from gemm_tuner.surface.callables import BY_USER  # imports the whole tuner

        if self.do_bench is not None:
            return replace(BY_USER, rounds=1, timeout_s=float(self.timeout))
        return Effort(
            warmup=self.warmup,
            screen_calls=min(self.rep, MOST_SCREEN_CALLS),
            rounds=self.rep,
            early_stop_ratio=self.early_stop_factor if self.early_stop else 0.0,
            timeout_s=float(self.timeout),
        )

    def clock(self) -> str | Clock:
        if self.do_bench is not None:
            return UserClock(functools.partial(_first_number, self.do_bench), "ms")
        if self.profiler:
            return "auto"
        return BACKENDS.get(self.backend, self.backend) if isinstance(self.backend, str) else self.backend

    @property
    def profiler(self) -> str:
        """The external profiler that ``backend`` names; empty for a clock of this process."""
        return self.backend if isinstance(self.backend, str) and self.backend in EXTERNAL else ""


def _first_number(do_bench: DoBench, call: Callable[[], Any]) -> float:
    """The median from ``do_bench(call, quantiles=...)``, which returns a number, or one per quantile."""
    found = do_bench(call, quantiles=QUANTILES)
    return float(found[0] if isinstance(found, Sequence) else found)


@dataclass(frozen=True)
class CompileArgs:
    """Arguments of ``tilelang.compile``, for functions that return an uncompiled TileLang program. options: of a Triton
    kernel's launch."""

    out_idx: Sequence[int] | int | None = None
    target: Any = "auto"
    execution_backend: str = "auto"
    target_host: Any = None
    verbose: bool = False
    pass_configs: Mapping[str, Any] | None = None
    options: Mapping[str, Any] | None = None

    def compile_program(self, program: Any, pass_configs: Mapping[str, Any] | None = None) -> Any:
        """Compiles a program. pass_configs: of one configuration, added to those of all."""
        import tilelang

        merged = {**(self.pass_configs or {}), **(pass_configs or {})}
        return tilelang.compile(
            program,
            out_idx=self.out_idx,
            target=self.target,
            execution_backend=self.execution_backend,
            target_host=self.target_host,
            verbose=self.verbose,
            **({PASS_CONFIGS: merged} if merged else {}),
        )

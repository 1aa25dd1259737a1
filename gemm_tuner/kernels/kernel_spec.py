"""The records of a user kernel's spec; ``kernel_spec_file`` reads them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

# Keyword arguments of a Triton launch that are not parameters of the kernel.
LAUNCH_OPTIONS = (
    *("num_warps", "num_stages", "num_ctas", "maxnreg", "waves_per_eu", "matrix_instr_nonkdim", "kpack"),
    "enable_fp_fusion",
)

Scalar = int | float | bool | str
MEDIAN, LAST = SELECTS = ("median", "last")
Case = tuple[tuple[str, Scalar], ...]


@dataclass(frozen=True, slots=True)
class Tensor:
    """name: of the kernel's parameter. dtype: a key of DTYPES, or the name of a case value that is one. init: the
    distribution of its values. output: it is filled with NaN before each check, and compared with the reference."""

    name: str
    shape: tuple[str, ...]
    dtype: str
    init: str = "randn"
    output: bool = False


@dataclass(frozen=True, slots=True)
class Function:
    """A user's function. source: the definitions that it needs, as text. parameters: their names."""

    name: str
    source: str
    parameters: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Check:
    """How results are compared.

    rtol, atol:           relative and absolute tolerance of an element; None for those of its type.
    rms:                  largest relative RMS error of an output; None for that of its type, or rtol if larger.
    max_mismatched_ratio: share of elements that may exceed the tolerance.
    skip_check:           results are not compared.
    nondeterministic:     repeated calls may give different bits.
    """

    rtol: float | None = None
    atol: float | None = None
    rms: float | None = None
    max_mismatched_ratio: float = 0.0
    skip_check: bool = False
    nondeterministic: bool = False


@dataclass(frozen=True, slots=True)
class KernelSpec:
    """The spec of a user's kernel; expressions are kept as the user's texts.

    key:            expressions; cases with equal values share a configuration. Empty: all values of a case.
    buckets:        upper limits by name, for the key bucket(M); None is no limit.
    derived:        values computed from configuration, case and device; shown in results and usable in expressions.
    reset, restore: tensors that are zeroed, or restored to their initial values, before each call.
    select:         MEDIAN, or LAST: which call of a process is its time in the finals.
    language:       language of the kernel. In "cute" (CuTe DSL), ``kernel`` creates what is compiled: its parameters
                    are compile-time values, a launch gets the tensors and then the args, and its host code sets the
                    grid.
    reference:      computes the outputs. manual_check: checks the outputs instead of a reference. Without either,
                    configurations are compared with each other.
    """

    name: str
    kernel: Function
    tensors: tuple[Tensor, ...]
    args: tuple[tuple[str, str], ...]
    params: tuple[tuple[str, tuple[Any, ...]], ...]
    grid: tuple[str, ...]
    rules: tuple[tuple[str, str], ...]
    reference: Function | None = None
    manual_check: Function | None = None
    check: Check = Check()
    check_cases: tuple[Case, ...] = ()
    key: tuple[str, ...] = ()
    buckets: tuple[tuple[str, float | None], ...] = ()
    derived: tuple[tuple[str, str], ...] = ()
    reset: tuple[str, ...] = ()
    restore: tuple[str, ...] = ()
    flops: str = ""
    bytes: str = ""
    select: str = MEDIAN
    language: str = "triton"

"""The spec of a user's kernel, as records; ``kernel_spec_file`` reads it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

# Keyword arguments of a Triton launch that are no parameters of the kernel.
LAUNCH_OPTIONS = (
    *("num_warps", "num_stages", "num_ctas", "maxnreg", "waves_per_eu", "matrix_instr_nonkdim", "kpack"),
    "enable_fp_fusion",
)

Scalar = int | float | bool | str
Case = tuple[tuple[str, Scalar], ...]


@dataclass(frozen=True, slots=True)
class Tensor:
    """name: of the kernel's parameter. dtype: a key of DTYPES, or the name of a case's value that is one. init: the
    distribution of its values. output: filled with NaN before each check and compared with the reference."""

    name: str
    shape: tuple[str, ...]
    dtype: str
    init: str = "randn"
    output: bool = False


@dataclass(frozen=True, slots=True)
class Function:
    """source: the definitions that it needs, as text. parameters: their names."""

    name: str
    source: str
    parameters: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Check:
    """How results are judged.

    rtol, atol: of an element, relative and absolute; None for those of its type. rms: the largest relative RMS of the
    error of an output; None for what its type allows, or rtol where that is more.
    max_mismatched_ratio: the share of elements that may be beyond rtol and atol. skip_check: results are not compared.
    nondeterministic: equal calls may give other bits.
    """

    rtol: float | None = None
    atol: float | None = None
    rms: float | None = None
    max_mismatched_ratio: float = 0.0
    skip_check: bool = False
    nondeterministic: bool = False


@dataclass(frozen=True, slots=True)
class KernelSpec:
    """All texts of expressions are as the user wrote them.

    key: expressions whose values say which cases share a configuration; empty for all values of a case. buckets: upper
    limits by name, for the key bucket(M); None is no limit.
    derived: values that follow from configuration, case and device: shown in results, usable as args are.
    reset, restore: tensors that are zero, or have their first values again, before each call.
    language: that the kernel is written in. In "cute", CuTe DSL, ``kernel`` makes what is compiled: its parameters are
    compile-time values, a launch gets the tensors and then the args, and its host code has the grid.
    reference: computes the outputs; manual_check: judges them in its place. Without either, configurations are compared
    with each other.
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
    language: str = "triton"

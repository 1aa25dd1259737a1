"""One case of a user's kernel in CuTe DSL, as a problem of the tuner."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from gemm_tuner.kernels.kernel_spec import Case, KernelSpec
from gemm_tuner.kernels.problem import KernelProblem


@dataclass(frozen=True, slots=True)
class CuteProblem(KernelProblem):
    """spec: its kernel is the builder, whose parameters are compile-time values: parameters of the configuration, and
    values of the case. Tensors and args, in their order, are what a launch gets."""

    kind: ClassVar[str] = "cute"


def problem_of(spec: KernelSpec, case: Case) -> KernelProblem:
    """A case of a spec in either language."""
    kind = CuteProblem if spec.language == "cute" else KernelProblem
    return kind.of(spec, case)

"""A case of a user's kernel in CuTe DSL as a problem of the tuner."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from gemm_tuner.kernels.kernel_spec import Case, KernelSpec
from gemm_tuner.kernels.problem import KernelProblem


@dataclass(frozen=True, slots=True)
class CuteProblem(KernelProblem):
    """A case of a CuTe DSL kernel. The spec's ``kernel`` is the builder, whose parameters are compile-time values:
    parameters of the configuration and values of the case. A launch gets the tensors and then the args, in order."""

    kind: ClassVar[str] = "cute"


def problem_of(spec: KernelSpec, case: Case) -> KernelProblem:
    """The problem of a case of a spec, in either language."""
    kind = CuteProblem if spec.language == "cute" else KernelProblem
    return kind.of(spec, case)

"""Validates a kernel's spec as a whole before anything is compiled: unknown names, parameters without a value, and
expressions that cannot be evaluated."""

from __future__ import annotations

from collections.abc import Iterable

from gemm_tuner.core.dtypes import DTYPES
from gemm_tuner.core.errors import UserError
from gemm_tuner.kernels import arguments
from gemm_tuner.kernels.expressions import Expression
from gemm_tuner.kernels.kernel_spec import LAUNCH_OPTIONS, Case, KernelSpec
from gemm_tuner.system.documents import show
from gemm_tuner.system.values import did_you_mean

OF_DEVICE, RULES = ("device.num_sms",), "rules"


def require_whole(spec: KernelSpec, cases: tuple[Case, ...], where: str) -> None:
    """Validates the spec. Raises UserError naming the file and the key."""
    of_case = set.intersection(*({name for name, _ in case} for case in cases))
    _require_values(spec, of_case, where)
    _require_parameters(spec, where)
    _require_tensors(spec, cases, where)
    _require_names(spec, of_case, where)
    _require_launches(spec, cases, where)


def _require_values(spec: KernelSpec, of_case: set[str], where: str) -> None:
    """Checks that every parameter of the kernel has a value."""
    given = {*of_case, *(one.name for one in spec.tensors), *names_of(spec.derived, spec.args, spec.params)}
    for name in spec.kernel.parameters:
        if name not in given:
            accepted = "an entry of tensors, args, params or cases"
            raise UserError(f"{name}, a parameter of {spec.kernel.name}, gets no value", where=where, accepted=accepted)


def _require_parameters(spec: KernelSpec, where: str) -> None:
    """Checks that every name is a parameter, a launch option, or used by an expression."""
    known = (*spec.kernel.parameters, *LAUNCH_OPTIONS)
    texts = [text for key, text in _expressions(spec) if key != RULES]
    used = {name for text in texts for name in Expression.parse(text, where).names}
    # In CuTe DSL tensors and args belong to the launch; the function that creates the kernel does not get them.
    of_launch, args = (spec.tensors, spec.args) if spec.language == "triton" else ((), ())
    idle = [name for name in names_of(args, spec.params) if name not in used]
    for name in [*(one.name for one in of_launch), *idle]:
        if name not in known:
            what, hint = f"{name} is no parameter of {spec.kernel.name}", did_you_mean(name, known)
            raise UserError(what, where=where, accepted=", ".join(known), hint=hint)


def _require_tensors(spec: KernelSpec, cases: tuple[Case, ...], where: str) -> None:
    if not spec.check.skip_check and not any(one.output for one in spec.tensors):
        accepted = "output: true at each tensor that the kernel writes, or check: {skip_check: true}"
        raise UserError(
            "no tensor is an output, so nothing can be checked", where=f"{where}, tensors", accepted=accepted
        )
    tensors = [one.name for one in spec.tensors]
    for key, named in (("reset", spec.reset), ("restore", spec.restore)):
        for name in named:
            if name not in tensors or (key == "restore" and name in spec.reset):
                what = f"{name} is no tensor" if name not in tensors else f"{name} is in reset, too"
                hint = did_you_mean(name, tensors)
                raise UserError(what, where=f"{where}, {key}", accepted=", ".join(tensors), hint=hint)
    for tensor in spec.tensors:
        dtypes = {dict(case).get(tensor.dtype, tensor.dtype) for case in cases}
        for dtype in sorted(map(str, dtypes - DTYPES.keys())):
            raise UserError(
                f"dtype is {show(dtype)}", where=f"{where}, tensors, {tensor.name}", accepted=", ".join(DTYPES),
                hint=did_you_mean(dtype, DTYPES),
            )  # fmt: skip


def _require_names(spec: KernelSpec, of_case: set[str], where: str) -> None:
    """Checks that every name in an expression is known."""
    known = {*of_case, *OF_DEVICE, *names_of(spec.derived, spec.args, spec.params)}
    of_problem = [(key, text) for key, text in (("flops", spec.flops), ("bytes", spec.bytes)) if text]
    for key, text in (*_expressions(spec), *of_problem):
        may = of_case if (key, text) in of_problem else known
        for name in sorted(Expression.parse(text, f"{where}, {key}").names - may):
            hint = did_you_mean(name, may)
            accepted = ", ".join(sorted(may))
            raise UserError(f"{show(text)} names {name}", where=f"{where}, {key}", accepted=accepted, hint=hint)


def _require_launches(spec: KernelSpec, cases: tuple[Case, ...], where: str) -> None:
    """Checks that every case can be launched with the first configuration; faults that depend on other configurations
    are found when these run."""
    params = {name: values[0] for name, values in spec.params}
    for case in cases[:1]:
        try:
            shared = arguments.names_of(spec, dict(case), None, 1)
            tensors = arguments.tensors_of(spec, shared, lambda *_: None)
            arguments.launch_of(spec, arguments.names_of(spec, dict(case), params, 1), params, tensors)
        except UserError as error:
            raise UserError(
                error.what, where=f"{where}, {error.where}", accepted=error.accepted, hint=error.hint
            ) from None


def names_of(*pairs: Iterable[tuple[str, object]]) -> list[str]:
    return [name for some in pairs for name, _ in some]


def _expressions(spec: KernelSpec) -> list[tuple[str, str]]:
    """(key, text) of all expressions over a configuration."""
    return [
        *(("grid", text) for text in spec.grid),
        *((f"derived, {name}", text) for name, text in spec.derived),
        *((f"args, {name}", text) for name, text in spec.args),
        *((RULES, text) for text, _ in spec.rules),
        *((f"tensors, {tensor.name}", text) for tensor in spec.tensors for text in tensor.shape),
    ]

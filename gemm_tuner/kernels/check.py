"""Compares the outputs of a user's kernel with its reference. Needs torch."""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING, Any

from gemm_tuner.core.records import Verdict
from gemm_tuner.core.workload import launch_all
from gemm_tuner.kernels import arguments
from gemm_tuner.kernels.kernel_spec import Function, KernelSpec
from gemm_tuner.kernels.problem import KernelProblem
from gemm_tuner.languages.bits import first_difference
from gemm_tuner.languages.scratch import count_sms

if TYPE_CHECKING:
    from gemm_tuner.kernels.workload import KernelWorkload

# Of an element, where the spec gives none: relative and absolute, by bytes of its type.
TOLERANCES = {4: 1e-4, 2: 1e-2, 1: 1e-1}
REPEATS = 3


def check(
    workload: KernelWorkload, script: ModuleType, problem: KernelProblem, name: str, seed: int, device: str
) -> Verdict:
    """Outputs are NaN before the call. On a GPU the call is repeated and must give the same bits."""
    spec = problem.spec
    assert spec is not None
    (tensors,) = workload.operands(problem, 0, "", seed, device)
    before = {key: value.clone() for key, value in tensors.by_name().items()}
    expected = results_of_reference(spec, problem, before, count_sms(device))
    launches = workload.launches(script, script.CONFIGS[name], problem, tensors, None, count_sms(device))
    verdict = None
    first: list[Any] = []
    for turn in range(1 if device == "cpu" else REPEATS):
        for key, value in tensors.by_name().items():
            value.copy_(before[key])
        launch_all(launches)
        outputs = [tensors.by_name()[one.name] for one in spec.tensors if one.output]
        if turn == 0:
            first = [one.clone() for one in outputs]
            verdict = compared(spec, problem, name, outputs, expected)
        elif any(first_difference(one, two) is not None for one, two in zip(first, outputs, strict=True)):
            return Verdict(problem, name, False, 0.0, 0.0, (0, 0), f"call {turn + 1} gave other bits", stable=False)
    assert verdict is not None
    return verdict


def results_of_reference(spec: KernelSpec, problem: KernelProblem, tensors: dict[str, Any], num_sms: int) -> list[Any]:
    """The outputs by the reference, in the order of the spec. Raises ValueError for another number or shape of them."""
    import torch

    given = {
        **arguments.names_of(spec, problem.values, None, num_sms),
        **{key: value.clone() for key, value in tensors.items()},
        "dtype": torch.float64,
    }
    function = loaded(spec.reference)
    found = function(**{name: given[name] for name in spec.reference.parameters if name in given})
    results = list(found) if isinstance(found, (tuple, list)) else [found]
    outputs = [one for one in spec.tensors if one.output]
    shapes = [tuple(tensors[one.name].shape) for one in outputs]
    if [tuple(one.shape) for one in results] != shapes:
        told = ", ".join(str(tuple(one.shape)) for one in results)
        raise ValueError(f"the reference returned {told} for outputs of {', '.join(map(str, shapes))}")
    return results


def loaded(function: Function) -> Any:
    """Runs the definitions that the user's own file has for it."""
    module = ModuleType(f"reference_{function.name}")
    exec(compile(function.source, f"<{module.__name__}>", "exec"), module.__dict__)  # noqa: S102
    return getattr(module, function.name)


def compared(spec: KernelSpec, problem: KernelProblem, name: str, outputs: list[Any], expected: list[Any]) -> Verdict:
    """The verdict over all outputs: an error is measured in rtol * |expected| + atol."""
    worst: tuple[float, tuple[int, int], str, float] = (0.0, (0, 0), "", 0.0)
    labels = [one.name for one in spec.tensors if one.output]
    for label, actual, wanted in zip(labels, outputs, expected, strict=True):
        default = TOLERANCES[min(4, actual.element_size())]
        rtol = default if spec.rtol is None else spec.rtol
        atol = default if spec.atol is None else spec.atol
        wanted = wanted.double()
        error = (actual.double() - wanted).abs()
        same = (actual.isnan() & wanted.isnan()) | (actual.double() == wanted)
        score = (error / (rtol * wanted.abs() + atol).clamp_min(1e-300)).masked_fill(same, 0.0)
        score = score.nan_to_num(nan=float("inf"), posinf=float("inf"))
        at = int(score.argmax())
        over, columns = float(score.flatten()[at]), max(1, actual.shape[-1] if actual.dim() else 1)
        if over >= worst[0]:
            text = f"{label}[{at}] is {float(actual.flatten()[at]):.6g}, not {float(wanted.flatten()[at]):.6g}"
            largest = float(error.masked_fill(same, 0.0).nan_to_num(nan=float("inf")).max())
            worst = (over, divmod(at, columns), text, largest)
    over, at_element, text, largest = worst
    return Verdict(problem, name, over <= 1.0, largest, over, at_element, "" if over <= 1.0 else text)

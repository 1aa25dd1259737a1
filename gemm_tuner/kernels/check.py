"""Checks the outputs of a user's kernel against its reference or with the user's own check. Needs torch."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

from gemm_tuner.core.records import Verdict, Verified
from gemm_tuner.core.workload import Launch, launch_all
from gemm_tuner.kernels import arguments
from gemm_tuner.kernels.compare import Comparison, compared
from gemm_tuner.kernels.copies import copied, has_room
from gemm_tuner.kernels.kernel_spec import Function, KernelSpec
from gemm_tuner.kernels.problem import KernelProblem
from gemm_tuner.kernels.stores import unwritten_parameters
from gemm_tuner.kernels.tensors import Tensors
from gemm_tuner.languages.bits import first_difference
from gemm_tuner.languages.scratch import count_sms

if TYPE_CHECKING:
    from gemm_tuner.kernels.workload import KernelWorkload

REPEATS = 5
TRITON = "triton"


class Unstable(Exception):
    """Repeated calls gave different bits; the text says which call."""


class BadReference(Exception):
    """The reference did not return values for the outputs; the text says what it returned."""


class NoSuchValue(BadReference):
    """The reference has a parameter that is given no value."""


class Trial:
    """One case of a kernel with its tensors, on which configurations are run in sequence."""

    def __init__(self, workload: KernelWorkload, problem: KernelProblem, seed: int, device: str) -> None:
        assert problem.spec is not None
        self.spec, self.problem, self.device, self._workload = problem.spec, problem, device, workload
        tensors: Tensors
        (tensors,) = workload.operands(problem, 0, "", seed, device)
        self._tensors, self._num_sms = tensors, count_sms(device)
        self._ready = workload.before_call(problem, tensors)
        inputs = _inputs(self.spec)
        # Inputs are restored, too, where that is cheap: a faulty kernel may write anywhere.
        self.before = {
            key: value if key in inputs and not has_room(value) else copied(value)
            for key, value in tensors.by_name().items()
        }

    def outputs(self, script: ModuleType, name: str) -> dict[str, Any]:
        """Copies of the outputs of one configuration, by name. On a GPU the call is repeated; raises Unstable if the
        bits differ, unless the spec allows that."""
        launches: list[Launch] = self._workload.launches(
            script, script.CONFIGS[name], self.problem, self._tensors, None, self._num_sms
        )
        once = self.device == "cpu" or self.spec.check.nondeterministic or self.spec.check.skip_check
        tensors, first = self._tensors.by_name(), {}
        for turn in range(1 if once else REPEATS):
            for key, value in tensors.items():
                if self.before[key] is not value:
                    value.copy_(self.before[key])
            if self._ready is not None:
                self._ready()
            launch_all(launches)
            outputs = {one.name: tensors[one.name] for one in self.spec.tensors if one.output}
            if turn == 0:
                first = {key: value.clone() for key, value in outputs.items()}
            elif any(first_difference(first[key], value) is not None for key, value in outputs.items()):
                hint = "say check: {nondeterministic: true} if it may"
                raise Unstable(f"call {turn + 1} gave other bits; {hint}")
        return first

    def given(self, wanted: Collection[str]) -> dict[str, Any]:
        """The values available to the user's functions by name: the case's values, args, and those tensors that are
        wanted, as before the call."""
        names = arguments.names_of(self.spec, self.problem.values, None, self._num_sms)
        tensors = self._tensors.by_name()
        before = {key: one.to(tensors[key].device, copy=True) for key, one in self.before.items() if key in wanted}
        return {**names, **before}

    def expected(self) -> dict[str, Any]:
        """The outputs of the reference. Raises BadReference for a parameter without a value, and for a wrong number,
        shape or type of outputs."""
        import torch

        assert self.spec.reference is not None
        given = {**self.given(self.spec.reference.parameters), "dtype": torch.float64}
        function = loaded(self.spec.reference)
        needed = [one.name for one in inspect.signature(function).parameters.values() if one.default is one.empty]
        if absent := [name for name in needed if name in self.spec.reference.parameters and name not in given]:
            there = dict.fromkeys([*(one.name for one in self.spec.tensors), *filter(str.isidentifier, given)])
            raise NoSuchValue(f"the reference takes {', '.join(absent)}, and is given {', '.join(there)}")
        found = function(**{name: given[name] for name in self.spec.reference.parameters if name in given})
        results = list(found) if isinstance(found, (tuple, list)) else [found]
        shapes = self.shapes()
        if not all(isinstance(one, torch.Tensor) for one in results):
            kinds = ", ".join(type(one).__name__ for one in results)
            raise BadReference(f"the reference returned {kinds} and no tensors; one that judges is a manual_check")
        if [tuple(one.shape) for one in results] != [*shapes.values()]:
            told = ", ".join(str(tuple(one.shape)) for one in results)
            raise BadReference(f"the reference returned {told} for outputs of {', '.join(map(str, shapes.values()))}")
        return dict(zip(shapes, results, strict=True))

    def judged(self, function: Function, outputs: Mapping[str, Any]) -> Comparison:
        """The result of the user's own check."""
        return judged_by(function, outputs, self.given(function.parameters))

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of the outputs, by name."""
        return {one.name: tuple(self.before[one.name].shape) for one in self.spec.tensors if one.output}

    def verdict(self, name: str, found: Comparison, how: Verified | None = None) -> Verdict:
        return Verdict(self.problem, name, found.ok, found.max_abs_error, found.over, found.at, found.message, how=how)

    def unstable(self, name: str, error: Unstable) -> Verdict:
        return Verdict(self.problem, name, False, 0.0, 0.0, (0, 0), str(error), stable=False)


def _inputs(spec: KernelSpec) -> frozenset[str]:
    """The tensors that a kernel surely does not write."""
    if spec.language != TRITON:
        return frozenset()
    written = {one.name for one in spec.tensors if one.output} | {*spec.reset, *spec.restore}
    return unwritten_parameters(spec.kernel.source, spec.kernel.name) - written


def check(
    workload: KernelWorkload, script: ModuleType, problem: KernelProblem, name: str, seed: int, device: str
) -> Verdict:
    """The verdict on one configuration. Outputs are filled with NaN before the call."""
    trial = workload.trial(problem, seed, device)
    spec = trial.spec
    try:
        outputs = trial.outputs(script, name)
        wait_for(outputs)
    except Unstable as error:
        return trial.unstable(name, error)
    if spec.check.skip_check:
        return trial.verdict(name, Comparison(), Verified.FALSE)
    if spec.manual_check is not None:
        return trial.verdict(name, trial.judged(spec.manual_check, outputs))
    return trial.verdict(name, compared(spec.check, outputs, trial.expected()))


def wait_for(outputs: Mapping[str, Any]) -> None:
    """Until the GPU is through with a configuration: a fault that shows later would be taken for a wrong output, and be
    attributed to another configuration."""
    import torch

    if any(value.is_cuda for value in outputs.values()):
        torch.cuda.synchronize()


def judged_by(function: Function, outputs: Mapping[str, Any], given: Mapping[str, Any]) -> Comparison:
    """Calls the user's own check, which raises or returns False for wrong outputs. A parameter that is not a name of
    the spec receives the list of outputs."""
    known = {**given, **outputs}
    try:
        found = loaded(function)(**{name: known.get(name, list(outputs.values())) for name in function.parameters})
    except Exception as error:
        text = " ".join(str(error).split())
        return Comparison(float("inf"), float("inf"), message=f"{function.name}: {type(error).__name__}: {text}")
    wrong = found is not None and not bool(found)
    return Comparison(float("inf"), float("inf"), message=f"{function.name} says {found}") if wrong else Comparison()


def loaded(function: Function) -> Any:
    """The function, from executing the definitions of the user's file that it needs."""
    module = ModuleType(f"reference_{function.name}")
    exec(compile(function.source, f"<{module.__name__}>", "exec"), module.__dict__)  # noqa: S102
    return getattr(module, function.name)

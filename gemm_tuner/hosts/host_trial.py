"""Runs one case of a host function for several configurations, for checks. Needs torch."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping
from types import ModuleType
from typing import Any

from gemm_tuner.hosts.host_code import HostCode, modules_of, outputs_of, params_of, seed_all, with_empty_filled
from gemm_tuner.hosts.host_spec import HostProblem
from gemm_tuner.hosts.kept_outputs import kept_outputs
from gemm_tuner.hosts.redirection import CPU, redirected
from gemm_tuner.hosts.stand_in_device import described
from gemm_tuner.kernels.check import REPEATS, Trial, Unstable
from gemm_tuner.kernels.compare import Comparison
from gemm_tuner.kernels.copies import copied
from gemm_tuner.kernels.kernel_spec import Function
from gemm_tuner.languages.bits import first_difference
from gemm_tuner.languages.triton import interpreter_fault
from gemm_tuner.languages.triton.launch_recorder import Recorder


class HostTrial(Trial):
    """A case of a host function. The function runs again for each configuration and creates its inputs again, which are
    equal because the seed is. References receive kernel arguments by parameter name, with the values from before the
    first launch that has a parameter of this name."""

    def __init__(self, problem: HostProblem, seed: int, device: str) -> None:
        assert problem.spec is not None
        self.spec, self.problem, self.device, self._host_problem = problem.spec, problem, device, problem
        self._seed = seed
        self._given: dict[str, Any] = {}
        self._devices: dict[str, Any] = {}
        self._outputs: dict[str, Any] = {}

    def outputs(self, script: ModuleType, name: str) -> dict[str, Any]:
        """Copies of the outputs (the function may reuse its buffers). Raises ValueError if it returns no tensor."""
        kept = kept_outputs(script)
        kept.put_back()

        def before(kernel: Any, arguments: Mapping[str, Any]) -> None:
            kept.note(kernel, arguments)
            self._keep(kernel, arguments)

        once = self.device == CPU or self.spec.check.nondeterministic or self.spec.check.skip_check
        first: dict[str, Any] = {}
        for turn in range(1 if once else REPEATS):
            with placed(self._host_problem, self.device), with_empty_filled(float("nan")):
                code = HostCode(self._host_problem.spec_there, modules_of(script))
                self._given = {}
                _, returned = code.call(
                    self.problem.case, params_of(script.CONFIGS[name]), self._seed, runs=True, before=before
                )
            found = outputs_of(returned)
            if not found:
                raise ValueError(f"{self._host_problem.spec_there.host.name} returned no tensor to check")
            kept.keep(found.values())
            if turn == 0:
                first = {key: value.detach().clone() for key, value in found.items()}
            elif any(first_difference(first[key], value) is not None for key, value in found.items()):
                hint = "say check: {nondeterministic: true} if it may"
                raise Unstable(f"call {turn + 1} gave other bits; {hint}")
        self._outputs = first
        return first

    def rehearse(self, code: HostCode, params: Mapping[str, Any]) -> Recorder:
        """As ``outputs``, but no kernel runs, and tensors may have no values. Provides what ``expected`` needs."""
        recorder, returned = code.call(self.problem.case, params, self._seed, runs=False, before=self._keep)
        self._outputs = outputs_of(returned)
        return recorder

    def _keep(self, _: Any, arguments: Mapping[str, Any]) -> None:
        """Copies the arguments that the user's reference or check uses."""
        import torch

        function = self.spec.reference or self.spec.manual_check
        for name in function.parameters if function else ():
            if name in arguments and name not in self._given:
                value = getattr(arguments[name], "base", None) if hasattr(arguments[name], "block_shape") else None
                value = arguments[name] if value is None else value
                self._given[name] = copied(value) if isinstance(value, torch.Tensor) else value
                self._devices[name] = getattr(value, "device", None)

    def given(self, wanted: Collection[str]) -> dict[str, Any]:
        import torch

        copies = {
            name: one.to(self._devices[name], copy=True) if isinstance(one, torch.Tensor) else one
            for name, one in self._given.items()
            if name in wanted
        }
        return {**self.problem.values, **copies}

    def expected(self) -> dict[str, Any]:
        with placed(self._host_problem, self.device):
            seed_all(self._seed)  # a reference may create the inputs again
            return super().expected()

    def judged(self, function: Function, outputs: Mapping[str, Any]) -> Comparison:
        with placed(self._host_problem, self.device):
            return super().judged(function, outputs)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: tuple(one.shape) for name, one in self._outputs.items()}


@contextlib.contextmanager
def placed(problem: HostProblem, device: str) -> Iterator[None]:
    """A context for the interpreter: the GPU appears as the problem describes it, and tensors are on the CPU."""
    if device != CPU or problem.device is None:
        yield
        return
    with described(problem.device), redirected(CPU), interpreter_fault.mended():
        yield

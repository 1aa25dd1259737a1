"""Calls a user's host function for a case and a configuration, and records its launches."""

from __future__ import annotations

import contextlib
import inspect
import random
from collections.abc import Mapping
from functools import lru_cache
from types import ModuleType
from typing import Any

import numpy as np

from gemm_tuner.hosts.host_errors import CompiledNowhere, HostError
from gemm_tuner.hosts.host_spec import HostSpec
from gemm_tuner.hosts.module_loader import UserModules
from gemm_tuner.hosts.redirection import function_mode
from gemm_tuner.kernels.copies import copied
from gemm_tuner.kernels.kernel_spec import LAUNCH_OPTIONS, Case
from gemm_tuner.languages.triton.launch_recorder import Before, Recorder, function_of

EMPTY = ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided")
NOT_OPTIONS = ("name", "binary", "family")  # keys of a script's configuration that are not parameters


@lru_cache(maxsize=8)
def modules_of(script: ModuleType) -> UserModules:
    """The user's modules of a script; they are executed once."""
    return UserModules(script.MODULES)


class HostCode:
    """The host function and the kernel of a spec. Creating it loads the user's modules, so a GPU, or a description of
    one, must already be available to them."""

    def __init__(self, spec: HostSpec, modules: UserModules) -> None:
        self._spec = spec
        self._function = getattr(modules.load(spec.host.module), spec.host.name)
        self.kernel = getattr(modules.load(spec.host.kernel_module), spec.kernel.name)

    def defaults(self) -> dict[str, Any]:
        """The default values of the host function's parameters."""
        found = inspect.signature(self._function).parameters.values()
        return {one.name: one.default for one in found if one.default is not one.empty}

    def call(
        self, case: Case, params: Mapping[str, Any], seed: int, *, runs: bool, before: Before | None = None
    ) -> tuple[Recorder, Any]:
        """Calls the host function; returns (recorded launches, its return value). seed: of its random values.

        Raises what it raises, and HostError if it cannot be captured or does not launch the kernel.
        """
        host, kernel = self._spec.host, self._spec.kernel
        own = {name: value for name, value in params.items() if host.takes_any or name in host.parameters}
        known = {*kernel.parameters, *LAUNCH_OPTIONS}
        rest = {name: params[name] for name in params if name not in host.parameters and name in known}
        given: dict[str, Any] = {"reset": self._spec.reset, "restore": self._spec.restore, "before": before}
        tuned = function_of(self.kernel)
        recorder = Recorder(tuned, rest, runs=runs, copied=copied, result=CompiledNowhere, **given)
        seed_all(seed)
        with recorder.recording():
            try:
                outputs = self._function(**dict(case), **own)
            except HostError as error:
                raise HostError(f"{host.name} {error}", by_spec=error.by_spec) from error
        if not recorder.tuned_at:
            others = sorted({function_of(one[1]).__name__ for one in recorder.launches})
            instead = f", only {', '.join(others)}" if others else ""
            raise HostError(f"{host.name} launches no {kernel.name}{instead}", by_spec=False)
        return recorder, outputs


def params_of(config: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in config.items() if name not in NOT_OPTIONS}


def seed_all(seed: int) -> None:
    import torch

    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def outputs_of(found: Any) -> dict[str, Any]:
    """The tensors that a host function returned (one, a list, or a mapping), by display names."""
    import torch

    if isinstance(found, Mapping):
        named = {str(name): value for name, value in found.items()}
    elif isinstance(found, (tuple, list)):
        named = {f"output {number}": value for number, value in enumerate(found, 1)}
    else:
        named = {"output": found}
    return {name: value for name, value in named.items() if isinstance(value, torch.Tensor)}


def with_empty_filled(value: float, addressed: list[Any] | None = None) -> Any:
    """A context in which uninitialized tensors are filled with ``value``; with -1 for integers if it is NaN. addressed:
    receives the tensors whose address is requested, because a launch may get the address instead of the tensor."""

    def call(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        found, name = func(*args, **kwargs), getattr(func, "__name__", "")
        if name == "data_ptr" and addressed is not None:
            addressed.append(args[0])
        if name in EMPTY:
            with contextlib.suppress(NotImplementedError, RuntimeError):  # a type without this operation
                found.fill_(value if found.is_floating_point() or value == 0 else -1)
        return found

    return function_mode(call)

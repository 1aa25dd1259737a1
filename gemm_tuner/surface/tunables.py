"""The kinds of functions that can be autotuned: @triton.jit kernels, factories of kernels, and other functions."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from gemm_tuner.core.errors import UserError
from gemm_tuner.surface import tilelang_kernels
from gemm_tuner.surface.configurations import LAUNCH_OPTIONS, PASS_CONFIGS, Candidate
from gemm_tuner.surface.profile_args import CompileArgs
from gemm_tuner.surface.supply import KernelParam


@dataclass(frozen=True)
class Arguments:
    """The arguments of a call."""

    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    def tensors(self) -> list[Any]:
        return [one for one in (*self.args, *self.kwargs.values()) if is_tensor(one)]

    def with_tensors(self, tensors: Sequence[Any]) -> Arguments:
        """The same call with other tensors, in order."""
        left = iter(tensors)
        args = tuple(next(left) if is_tensor(one) else one for one in self.args)
        return Arguments(args, {name: next(left) if is_tensor(one) else one for name, one in self.kwargs.items()})


@dataclass(frozen=True)
class Built:
    """A built configuration.

    kernel:    what the user gets in the end.
    run:       calls it with inputs; returns its outputs, or None if it writes them to its inputs.
    inputs:    of the user's call; None if they must be supplied.
    params:    describe the inputs; None if unknown.
    arguments: makes the arguments of a reference from the inputs and the returned outputs.
    is_direct: the function does the work itself, so building it was a call, which returned ``returned``.
    """

    kernel: Any
    run: Callable[[Sequence[Any]], Any]
    inputs: Sequence[Any] | None = None
    params: Sequence[KernelParam] | None = None
    arguments: Callable[[Sequence[Any], Sequence[Any]], Arguments] = lambda inputs, outputs: Arguments(tuple(inputs))
    is_direct: bool = False
    returned: Any = None


class Tunable(Protocol):
    """A function being tuned for one call. parameters: names that a configuration may contain."""

    name: str

    @property
    def parameters(self) -> tuple[str, ...]: ...

    def named(self, call: Arguments) -> dict[str, Any]:
        """The arguments of a call by name, without those that have no name."""

    def build(self, candidate: Candidate) -> Built:
        """Builds a candidate. Raises what the user's function raises."""


def reached_elements(tensor: Any) -> int:
    """The number of elements from the pointer to the last element."""
    if not all(tensor.shape):
        return 0
    last = sum((size - 1) * abs(stride) for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return 1 + int(last)


def is_tensor(value: Any) -> bool:
    return hasattr(value, "dtype") and hasattr(value, "shape") and hasattr(value, "data_ptr")


def is_jit(function: Any) -> bool:
    """Whether a function is a @triton.jit kernel, also with heuristics."""
    return hasattr(function, "arg_names") and hasattr(function, "run") and hasattr(function, "__getitem__")


def name_of(function: Any) -> str:
    while isinstance(function, functools.partial):
        function = function.func
    for inner in ("fn", "func", "orig_func", "base_fn"):
        if not hasattr(function, "__name__") and hasattr(function, inner):
            function = getattr(function, inner)
    return str(getattr(function, "__name__", type(function).__name__))


def signature_of(function: Any) -> inspect.Signature:
    """The signature of a function. Raises UserError if it has none."""
    own = getattr(function, "signature", None)
    if isinstance(own, inspect.Signature):
        return own
    try:
        return inspect.signature(function)
    except (TypeError, ValueError) as error:
        raise UserError(f"{name_of(function)} does not say its arguments", hint="wrap it in a def") from error


class Kernel:
    """A @triton.jit kernel with a grid. Its tensors are the inputs; those that it writes are also the outputs."""

    def __init__(self, function: Any, grid: Any, call: Arguments) -> None:
        self.function, self.grid, self.call = function, grid, call
        self.name = name_of(function)

    @property
    def parameters(self) -> tuple[str, ...]:
        return (*self.function.arg_names, *LAUNCH_OPTIONS)

    def named(self, call: Arguments) -> dict[str, Any]:
        return {**dict(zip(self.function.arg_names, call.args, strict=False)), **call.kwargs}

    def build(self, candidate: Candidate) -> Built:
        again = self.named(self.call).keys() & candidate.values.keys()
        if again:
            names = ", ".join(sorted(again))
            raise UserError(f"{names} is in the call and in a configuration", where=self.name, hint="leave it to one")

        hook = getattr(candidate.pre_hook, "__name__", "pre_hook") if candidate.pre_hook else ""
        kernel = TunedKernel(self.function, dict(candidate.values), hook)

        def launch(inputs: Sequence[Any]) -> None:
            call = self.call.with_tensors(inputs)
            kernel[self.grid](*call.args, **call.kwargs)

        params = [_param(name, one) for name, one in self.named(self.call).items() if is_tensor(one)]
        return Built(kernel, launch, self.call.tensors(), params)


@dataclass
class TunedKernel:
    """A @triton.jit kernel with its configuration, launched by ``kernel[grid](*arguments)``. pre_hook: the name of the
    configuration's, which this launch does not call; "" for none. compiled: Triton's compiled kernel of the last
    launch."""

    function: Any
    config: Mapping[str, Any]
    pre_hook: str = ""
    compiled: Any = None

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        def launch(*args: Any, **kwargs: Any) -> Any:
            self.compiled = self.function[grid](*args, **kwargs, **self.config)
            return self.compiled

        return launch


class Function:
    """A function with tunable parameters: a factory if it returns a callable, else it does the work itself."""

    def __init__(self, function: Any, call: Arguments, compile_args: CompileArgs | None = None) -> None:
        self.function, self.call, self.compile_args = function, call, compile_args or CompileArgs()
        self.name = name_of(function)

    @property
    def parameters(self) -> tuple[str, ...]:
        found = signature_of(self.function).parameters.values()
        names = tuple(one.name for one in found if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY))
        takes_any = any(one.kind is one.VAR_KEYWORD for one in found)
        return (*names, PASS_CONFIGS) if not takes_any else _Any((*names, PASS_CONFIGS))

    def without_value(self, candidates: Sequence[Candidate]) -> list[str]:
        """The parameters without a default that neither the call nor every candidate sets."""
        in_all = set.intersection(*(set(one.values) for one in candidates))
        found = signature_of(self.function).parameters.values()
        variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        named = [one.name for one in found if one.default is one.empty and one.kind not in variable]
        return [name for name in named if name not in in_all and name not in self.named(self.call)]

    def named(self, call: Arguments) -> dict[str, Any]:
        bound = signature_of(self.function).bind_partial(*call.args, **call.kwargs).arguments
        return {**bound, **call.kwargs}

    def build(self, candidate: Candidate) -> Built:
        values = dict(candidate.values)
        pass_configs = values.pop(PASS_CONFIGS, None) if PASS_CONFIGS not in _own_names(self.function) else None
        made = self._call(values, pass_configs)
        if tilelang_kernels.is_program(made):
            made = self.compile_args.compile_program(made, pass_configs)
        if tilelang_kernels.is_kernel(made):
            return _of_tilelang(made)
        if callable(made):
            return Built(made, lambda inputs: made(*inputs))
        return self._direct(values, made)

    def _call(self, values: Mapping[str, Any], pass_configs: Mapping[str, Any] | None) -> Any:
        """Calls the function. TileLang's jit accepts compiler options only as an attribute, which is set for the
        call."""
        if not pass_configs or not hasattr(self.function, PASS_CONFIGS):
            return self.function(*self.call.args, **{**self.call.kwargs, **values})
        before = self.function.pass_configs
        self.function.pass_configs = {**(before or {}), **pass_configs}
        try:
            return self.function.compile(*self.call.args, **{**self.call.kwargs, **values})
        finally:
            self.function.pass_configs = before

    def _direct(self, values: Mapping[str, Any], returned: Any) -> Built:
        def run(inputs: Sequence[Any]) -> Any:
            call = self.call.with_tensors(inputs)
            return self.function(*call.args, **{**call.kwargs, **values})

        def arguments(inputs: Sequence[Any], outputs: Sequence[Any]) -> Arguments:
            return self.call.with_tensors(inputs)

        tensors = self.call.tensors()
        params = [_param(name, one) for name, one in self.named(self.call).items() if is_tensor(one)]
        known = params if len(params) == len(tensors) else None  # unknown if tensors are in *args
        return Built(functools.partial(self.function, **values), run, tensors, known, arguments, True, returned)


class _Any(tuple[str, ...]):
    """The parameter names of a function with ``**kwargs``: contains every name."""

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str)


def _own_names(function: Any) -> tuple[str, ...]:
    return tuple(signature_of(function).parameters)


def _of_tilelang(kernel: Any) -> Built:
    def arguments(inputs: Sequence[Any], outputs: Sequence[Any]) -> Arguments:
        return Arguments(tuple(tilelang_kernels.with_outputs(kernel, inputs, outputs)))

    return Built(
        kernel,
        functools.partial(tilelang_kernels.call, kernel),
        params=tilelang_kernels.params_of(kernel),
        arguments=arguments,
    )


def _param(name: str, tensor: Any) -> KernelParam:
    return KernelParam(name, str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape))

"""The functions that compile, launch, check and restore a tuned call, in this process or rebuilt in another.

Another process recreates inputs from types and shapes, with random numbers.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gemm_tuner.core.errors import UserError
from gemm_tuner.kernels.compare import is_tensor
from gemm_tuner.surface.job import PLAIN, Address, address, at_address, written
from gemm_tuner.surface.records import Call, Check, Config

FUNCTIONS = ("build", "run", "reference", "outputs", "restore")
# (library, type, shape, device), or ("value", the value).
Input = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class CallParts:
    """The arguments of ``callables``. limits: fields of Check by name."""

    build: Callable[..., Any]
    run: Callable[..., Any] | None = None
    reference: Callable[..., Any] | None = None
    outputs: Callable[..., Sequence[Any]] | None = None
    restore: Callable[..., Any] | None = None
    limits: Mapping[str, Any] = field(default_factory=dict)

    def takes_args(self, args: Sequence[Any]) -> bool:
        """Whether ``build`` takes the call's arguments in addition to the configuration."""
        return bool(args) and takes(self.build, 1 + len(args))

    def compile(self, config: Config, args: Sequence[Any]) -> Any:
        return self.build(config, *args) if self.takes_args(args) else self.build(config)

    def launch(self, kernel: Any, args: Sequence[Any]) -> Any:
        return kernel(*args) if self.run is None else self.run(kernel, *args)

    def check(self, args: Sequence[Any]) -> Check:
        reference = self.reference
        return Check(None if reference is None else lambda: reference(*args), **self.limits)

    def call(self, kernel: Any, args: Sequence[Any]) -> Call:
        restore = self.restore
        return Call(
            run=lambda: self.launch(kernel, args),
            outputs=self.outputs(*args) if self.outputs else (),
            before=None if restore is None else lambda: restore(*args),
            kernel=kernel,
        )

    def addresses(self) -> dict[str, Address]:
        """The addresses of the functions. Raises UserError for a function that another process cannot import."""
        found = {name: getattr(self, name) for name in FUNCTIONS}
        return {name: address(one, name) for name, one in found.items() if one is not None}


def rebuilt(
    functions: Mapping[str, Address], limits: Mapping[str, Any], inputs: Sequence[Input], config: Config
) -> Call:
    """Rebuilds a call in another process from plain values."""
    parts = CallParts(**{name: at_address(one) for name, one in functions.items()}, limits=limits)
    args = tuple(map(_made, inputs))
    call = parts.call(parts.compile(config, args), args)
    return call if parts.reference is None else Call(call.run, parts.check(args), call.outputs, call.before)


def described(args: Sequence[Any]) -> tuple[Input, ...]:
    """Describes arguments by plain values. Raises UserError for those that cannot be rebuilt."""
    return tuple(_described(arg, f"argument {number}") for number, arg in enumerate(args))


def _described(arg: Any, part: str) -> Input:
    if not hasattr(arg, "dtype"):
        written(arg, part)
        return "value", arg
    is_float = arg.is_floating_point() if is_tensor(arg) else arg.dtype.kind == "f"
    if not is_float:
        what = f"{part} cannot be rebuilt in another process: it is a {type(arg).__name__} of {arg.dtype}"
        raise UserError(what, where="profiler=", accepted=f"tensors and arrays of floats, {PLAIN}")
    if is_tensor(arg):
        return "torch", str(arg.dtype).removeprefix("torch."), tuple(arg.shape), arg.device.type
    return "numpy", str(arg.dtype), tuple(arg.shape), ""


def _made(one: Input) -> Any:
    if one[0] == "value":
        return one[1]
    library, dtype, shape, device = one
    if library == "numpy":
        import numpy as np

        return np.asarray(np.random.standard_normal(shape), dtype=dtype)
    import torch

    return torch.randn(shape, device=device).to(getattr(torch, dtype))


def takes(function: Callable[..., Any], count: int) -> bool:
    """Whether a function can be called with ``count`` positional arguments."""
    try:
        inspect.signature(function).bind(*[None] * count)
    except (TypeError, ValueError):
        return False
    return True

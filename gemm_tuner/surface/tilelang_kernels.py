"""Reads the properties of TileLang kernels: arguments, outputs and generated source. Does not import TileLang."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gemm_tuner.surface.supply import KernelParam


def is_program(value: Any) -> bool:
    """Whether a value is an uncompiled TileLang program."""
    return type(value).__name__ == "PrimFunc"


def is_jit(function: Any) -> bool:
    """Whether a function is decorated by tilelang.jit, also with bound arguments."""
    while hasattr(function, "func") and hasattr(function, "keywords"):
        function = function.func
    return type(function).__module__.startswith("tilelang.")


def is_kernel(value: Any) -> bool:
    return callable(value) and isinstance(getattr(value, "params", None), Sequence) and hasattr(value, "out_idx")


def outputs_made(kernel: Any) -> tuple[int, ...]:
    """The positions, among all arguments, of the outputs that the kernel creates and returns."""
    found, count = kernel.out_idx, len(kernel.params)
    places = () if found is None else (found,) if isinstance(found, int) else tuple(found)
    return tuple(place % count for place in places)


def params_of(kernel: Any) -> tuple[KernelParam, ...]:
    """The kernel's inputs, without the outputs that it creates."""
    names, made = _names(kernel), outputs_made(kernel)
    return tuple(
        KernelParam(names[place], _dtype(param), tuple(_size(size) for size in param.shape))
        for place, param in enumerate(kernel.params)
        if place not in made
    )


def call(kernel: Any, inputs: Sequence[Any]) -> Any:
    """Calls the kernel. Inputs may include outputs, as in ``kernel(A, B, C)`` for an output C that it creates."""
    made = outputs_made(kernel)
    if made and len(inputs) == len(kernel.params):
        return kernel(*(one for place, one in enumerate(inputs) if place not in made))
    return kernel(*inputs)


def with_outputs(kernel: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> list[Any]:
    """All arguments: the inputs, with the outputs that the kernel created in their positions."""
    made = outputs_made(kernel)
    if not made or len(inputs) != len(kernel.params) or len(outputs) != len(made):
        return list(inputs)
    of_place = dict(zip(made, outputs, strict=True))
    return [of_place.get(place, one) for place, one in enumerate(inputs)]


def _names(kernel: Any) -> list[str]:
    """The names of the kernel's arguments in the program; numbered if unknown."""
    program = getattr(kernel, "prim_func", None)
    params, buffers = getattr(program, "params", None), getattr(program, "buffer_map", {})
    if params is None or len(params) != len(kernel.params):
        return [f"argument {number}" for number in range(1, len(kernel.params) + 1)]
    return [str(buffers.get(one, one).name) for one in params]


def _dtype(param: Any) -> str:
    """Torch's name of the type, else the kernel's."""
    try:
        return str(param.torch_dtype()).removeprefix("torch.")
    except Exception:
        return str(param.dtype).removeprefix("torch.")


def _size(size: Any) -> int | str:
    try:
        return int(size)
    except (TypeError, ValueError):
        return str(size)

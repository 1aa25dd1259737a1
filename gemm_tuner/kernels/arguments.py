"""Evaluates the expressions of a spec to the arguments of a kernel."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gemm_tuner.kernels.expressions import Expression
from gemm_tuner.kernels.kernel_spec import LAUNCH_OPTIONS, KernelSpec, Tensor

Make = Callable[[Tensor, str, tuple[int, ...]], Any]


def names_of(
    spec: KernelSpec, values: Mapping[str, Any], params: Mapping[str, Any] | None, num_sms: int
) -> dict[str, Any]:
    """The values of all names in expressions: the case's values, the configuration's parameters (numbers, or columns of
    many configurations), device.num_sms, derived values and args. Later args may use earlier ones.

    params: None for values that do not depend on a configuration; names that need a parameter are then left out.
    """
    names: dict[str, Any] = {"device.num_sms": num_sms, **values, **(params or {})}
    for key, texts in (("derived", spec.derived), ("args", spec.args)):
        for name, text in texts:
            expression = Expression.parse(text, f"{key}, {name}")
            if params is not None or expression.names <= names.keys():
                names[name] = expression.value(names)
    return names


def tensors_of(spec: KernelSpec, names: Mapping[str, Any], make: Make) -> dict[str, Any]:
    """The tensors by name, each created by ``make(tensor, dtype, shape)``."""
    found = {}
    for tensor in spec.tensors:
        where = f"tensors, {tensor.name}"
        shape = tuple(int(Expression.parse(text, where).value(names)) for text in tensor.shape)
        found[tensor.name] = make(tensor, str(names.get(tensor.dtype, tensor.dtype)), shape)
    return found


def launch_of(
    spec: KernelSpec, names: Mapping[str, Any], params: Mapping[str, Any], tensors: Mapping[str, Any]
) -> tuple[tuple[int, ...], dict[str, Any]]:
    """Returns (grid, keyword arguments) of one launch."""
    grid = tuple(int(Expression.parse(text, "grid").value(names)) for text in spec.grid)
    given = {**names, **tensors}
    arguments = {name: given[name] for name in spec.kernel.parameters}
    return grid, {**arguments, **{name: params[name] for name in LAUNCH_OPTIONS if name in params}}

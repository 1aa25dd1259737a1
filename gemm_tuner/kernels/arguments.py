"""The values of a kernel's arguments, by the expressions of its spec."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gemm_tuner.kernels.expressions import Expression
from gemm_tuner.kernels.kernel_spec import LAUNCH_OPTIONS, KernelSpec, Tensor

Make = Callable[[Tensor, str, tuple[int, ...]], Any]


def names_of(
    spec: KernelSpec, values: Mapping[str, Any], params: Mapping[str, Any] | None, num_sms: int
) -> dict[str, Any]:
    """What expressions may take: a case's values, a configuration's parameters (numbers, or columns of many), the
    device's SMs, derived values and args, of which later ones may use earlier ones.

    params: None for what all configurations share; what needs a parameter is then left out.
    """
    names: dict[str, Any] = {"device.num_sms": num_sms, **values, **(params or {})}
    for key, texts in (("derived", spec.derived), ("args", spec.args)):
        for name, text in texts:
            expression = Expression.parse(text, f"{key}, {name}")
            if params is not None or expression.names <= names.keys():
                names[name] = expression.value(names)
    return names


def tensors_of(spec: KernelSpec, names: Mapping[str, Any], make: Make) -> dict[str, Any]:
    """Each tensor by its name: ``make`` of it, its type and its shape."""
    found = {}
    for tensor in spec.tensors:
        where = f"tensors, {tensor.name}"
        shape = tuple(int(Expression.parse(text, where).value(names)) for text in tensor.shape)
        found[tensor.name] = make(tensor, str(names.get(tensor.dtype, tensor.dtype)), shape)
    return found


def launch_of(
    spec: KernelSpec, names: Mapping[str, Any], params: Mapping[str, Any], tensors: Mapping[str, Any]
) -> tuple[tuple[int, ...], dict[str, Any]]:
    """(grid, keyword arguments) of one launch."""
    grid = tuple(int(Expression.parse(text, "grid").value(names)) for text in spec.grid)
    given = {**names, **tensors}
    arguments = {name: given[name] for name in spec.kernel.parameters}
    return grid, {**arguments, **{name: params[name] for name in LAUNCH_OPTIONS if name in params}}

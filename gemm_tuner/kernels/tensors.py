"""Creates the tensors of a case. Needs torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, make_dataclass
from typing import Any

from gemm_tuner.core.dtypes import DTYPES
from gemm_tuner.kernels import arguments
from gemm_tuner.kernels.copies import copied
from gemm_tuner.kernels.kernel_spec import KernelSpec, Tensor
from gemm_tuner.languages.scratch import count_sms


@dataclass(frozen=True)
class Tensors:
    """Base class of the tensors of a spec; subclasses with one field per tensor are created from the spec."""

    def by_name(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    @staticmethod
    def of(spec: KernelSpec, values: Mapping[str, Any], seed: int, device: str) -> Tensors:
        """Creates the tensors of a case. Shapes must not depend on a configuration. Equal seeds give equal values."""
        import torch

        generator = torch.Generator(device=device).manual_seed(seed)

        def make(tensor: Tensor, dtype: str, shape: tuple[int, ...]) -> Any:
            return filled(tensor.init, getattr(torch, DTYPES[dtype].torch_name), shape, generator)

        found = arguments.tensors_of(spec, arguments.names_of(spec, values, None, count_sms(device)), make)
        kind = make_dataclass("SpecTensors", list(found), bases=(Tensors,), frozen=True)
        made: Tensors = kind(**found)
        return made


def readied(spec: KernelSpec, tensors: Mapping[str, Any]) -> Callable[[], None]:
    """A function that zeroes the tensors of ``reset``, and restores those of ``restore`` to their present values."""
    resets = [tensors[name] for name in spec.reset]
    restores = [(tensors[name], copied(tensors[name])) for name in spec.restore]

    def ready() -> None:
        for tensor in resets:
            tensor.zero_()
        for tensor, values in restores:
            tensor.copy_(values)

    return ready


def filled(init: str, dtype: Any, shape: tuple[int, ...], generator: Any) -> Any:
    """A tensor filled by ``init``: standard normal, uniform in [0, 1), integers from -3 to 3, or a constant."""
    import torch

    device = generator.device
    if init in ("zeros", "ones", "nan"):
        value = {"zeros": 0, "ones": 1, "nan": float("nan") if dtype.is_floating_point else -1}[init]
        return torch.full(shape, value, dtype=dtype, device=device)
    if init == "integer" or not dtype.is_floating_point:
        return torch.randint(-3, 4, shape, generator=generator, device=device).to(dtype)
    make = torch.rand if init == "uniform" else torch.randn
    return make(shape, generator=generator, device=device).to(dtype)

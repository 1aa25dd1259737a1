"""The records of the spec of a kernel that a host function launches, and of its cases as problems."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

import msgspec

from gemm_tuner.core.errors import UserError
from gemm_tuner.core.records import Device
from gemm_tuner.hosts.module_sources import Modules
from gemm_tuner.kernels.kernel_spec import KernelSpec
from gemm_tuner.kernels.problem import KernelProblem, tuples
from gemm_tuner.system.conversion import converted


@dataclass(frozen=True, slots=True)
class Host:
    """A host function FUNCTION(**case, **parameters) that creates inputs, launches the kernel and returns outputs.

    module, kernel_module: the modules in ``modules`` that define the function and the kernel.
    takes_any: it has a ``**`` parameter.
    """

    name: str
    module: str
    kernel_module: str
    parameters: tuple[str, ...]
    takes_any: bool
    modules: Modules


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSpec(KernelSpec):
    """A spec without tensors, args and grid, which the host function provides. params: empty until those of the
    kernel's own triton.autotune are known."""

    host: Host


@dataclass(frozen=True, slots=True)
class HostProblem(KernelProblem):
    """A case of a host function.

    device:  description of the GPU for host code if there is no GPU.
    listed:  the values of the spec's params, in order, of each configuration of the kernel's own triton.autotune for
             this case; None without triton.autotune.
    default: the values that the host function uses by default; None if unknown.
    """

    kind: ClassVar[str] = "hosts"
    spec: HostSpec | None = field(default=None, compare=False, repr=False)
    device: Device | None = field(default=None, compare=False, repr=False)
    listed: frozenset[tuple[Any, ...]] | None = field(default=None, compare=False, repr=False)
    default: tuple[Any, ...] | None = field(default=None, compare=False, repr=False)

    @property
    def spec_there(self) -> HostSpec:
        """The spec. Raises UserError for a problem from a results row, which has none."""
        if self.spec is None:
            hint = "the subcommand kernel takes it by --host and --spec, and this file by --gemm_size_file"
            raise UserError("was read without its spec", where=self.key, hint=hint)
        return self.spec

    def to_dict(self) -> dict[str, Any]:
        text = {"text": asdict(self.spec)} if self.spec else {}
        return {**self.row(), **text, **({"device": asdict(self.device)} if self.device else {})}

    @classmethod
    def from_dict(cls, row: Mapping[str, Any]) -> HostProblem:
        try:
            found = converted(row, _Row)
            spec = converted(tuples(found.text), HostSpec) if found.text is not None else None
        except msgspec.ValidationError as error:
            raise ValueError(str(error)) from error
        return cls(found.kernel, found.spec, tuple(found.case.items()), spec, device=found.device)


class _Row(msgspec.Struct, forbid_unknown_fields=True):
    kernel: str
    spec: str
    case: dict[str, int | float | bool | str]
    text: dict[str, Any] | None = None
    device: Device | None = None

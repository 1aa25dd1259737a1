"""A case of a user's kernel as a problem of the tuner."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, ClassVar

import msgspec

from gemm_tuner.kernels.expressions import Expression
from gemm_tuner.kernels.kernel_spec import Case, KernelSpec, Scalar
from gemm_tuner.system.conversion import converted

UNSAFE = re.compile(r"[^A-Za-z0-9.]+")
SHA_DIGITS = 12
NOT_TUNED = ("key", "buckets", "language", "select")  # not part of ``sha``; each kind of problem has one language


@dataclass(frozen=True, slots=True)
class KernelProblem:
    """One case of a user's kernel.

    sha:     over the spec, without fields that configurations do not depend on.
    spec:    None for a problem from a results row, which only has the sha; not part of equality.
    num_sms: of the device that it is compiled for.
    """

    kind: ClassVar[str] = "kernels"
    rate_key: ClassVar[str] = ""
    name: str
    sha: str
    case: Case
    spec: KernelSpec | None = field(default=None, compare=False, repr=False)
    num_sms: int = field(default=1, compare=False, repr=False)

    @classmethod
    def of(cls, spec: KernelSpec, case: Case) -> KernelProblem:
        tuned = {key: value for key, value in asdict(spec).items() if key not in NOT_TUNED}
        sha = hashlib.sha256(json.dumps(tuned, sort_keys=True).encode()).hexdigest()[:SHA_DIGITS]
        return cls(spec.name, sha, case, spec)

    @property
    def values(self) -> dict[str, Scalar]:
        return dict(self.case)

    @property
    def key(self) -> str:
        parts = [self.name, *(f"{name}{UNSAFE.sub('-', str(value))}" for name, value in self.case), self.sha]
        return "_".join(parts)

    @property
    def signature(self) -> str:
        return self.sha

    @property
    def subject(self) -> str:
        return self.name

    @property
    def shape(self) -> str:
        return " ".join(f"{name}={value}" for name, value in self.case)

    @property
    def flops(self) -> float:
        return self._number(self.spec.flops) if self.spec else 0.0

    @property
    def bytes_moved(self) -> float:
        return self._number(self.spec.bytes) if self.spec else 0.0

    def _number(self, text: str) -> float:
        return float(Expression.parse(text, "flops and bytes").value(self.values)) if text else 0.0

    def with_case(self, case: Case) -> KernelProblem:
        return replace(self, case=case)

    def row(self) -> dict[str, Any]:
        """The keys of a results row, without the kernel's text."""
        return {"kind": self.kind, "kernel": self.name, "spec": self.sha, "case": self.values}

    def to_dict(self) -> dict[str, Any]:
        return {**self.row(), **({"text": asdict(self.spec), "num_sms": self.num_sms} if self.spec else {})}

    @classmethod
    def from_dict(cls, row: Mapping[str, Any]) -> KernelProblem:
        """The inverse of ``to_dict`` and ``row``, without ``kind``. Raises ValueError for an invalid row."""
        try:
            found = converted(row, _Row)
            spec = converted(tuples(found.text), KernelSpec) if found.text is not None else None
        except msgspec.ValidationError as error:
            raise ValueError(str(error)) from error
        return cls(found.kernel, found.spec, tuple(found.case.items()), spec, found.num_sms)


class _Row(msgspec.Struct, forbid_unknown_fields=True):
    kernel: str
    spec: str
    case: dict[str, int | float | bool | str]
    text: dict[str, Any] | None = None
    num_sms: int = 1


def tuples(value: Any) -> Any:
    """Converts lists from JSON back to tuples."""
    if isinstance(value, (list, tuple)):
        return tuple(tuples(one) for one in value)
    return {key: tuples(one) for key, one in value.items()} if isinstance(value, dict) else value

"""A configuration whose fields are the axes that a space file names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Value = int | bool | str | tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PlainConfig:
    """A configuration of any family. values: (axis, value) in the order of the axes."""

    family: str
    values: tuple[tuple[str, Value], ...]

    @classmethod
    def from_dict(cls, row: Mapping[str, Any]) -> PlainConfig:
        """The inverse of ``to_dict``; lists from JSON and YAML become tuples. Raises ValueError without a family."""
        fields = {key: tuple(value) if isinstance(value, list) else value for key, value in row.items()}
        family = fields.pop("family", None)
        if not isinstance(family, str):
            raise ValueError("has no family")
        return cls(family, tuple(fields.items()))

    @property
    def name(self) -> str:
        return "_".join([self.family, *(f"{axis}{in_name(value)}" for axis, value in self.values)])

    @property
    def kernel_symbol(self) -> str:
        return self.name

    @property
    def simplicity(self) -> tuple[int, ...]:
        """The numeric values in the order of the axes; smaller counts as simpler."""
        return tuple(int(value) for _, value in self.values if isinstance(value, int))

    @property
    def is_of_a_server(self) -> bool:
        return False

    def to_dict(self) -> dict[str, Any]:
        return {"family": self.family, **dict(self.values)}

    def options(self) -> dict[str, Any]:
        return dict(self.values)


def in_name(value: Value) -> str:
    """A value as part of a kernel symbol and file name: 64, 1 for true, fast, 16x8."""
    return (
        "x".join(map(str, value)) if isinstance(value, tuple) else value if isinstance(value, str) else str(int(value))
    )

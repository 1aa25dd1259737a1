"""Y[rows, columns] = softmax of each row of X."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

SIZE_BYTES = {"fp32": 4, "fp16": 2}


@dataclass(frozen=True, slots=True)
class SoftmaxProblem:
    """rows, columns: elements; both matrices are row-major and of ``dtype``."""

    kind: ClassVar[str] = "softmax"
    rate_key: ClassVar[str] = ""
    rows: int
    columns: int
    dtype: str = "fp32"

    @property
    def key(self) -> str:
        return f"softmax_{self.rows}x{self.columns}_{self.dtype}"

    @property
    def signature(self) -> str:
        return self.dtype

    @property
    def subject(self) -> str:
        return self.kind

    @property
    def shape(self) -> str:
        return f"{self.rows} x {self.columns}"

    @property
    def flops(self) -> float:
        """A maximum, a subtraction, an exponential, a sum and a division an element."""
        return 5.0 * self.rows * self.columns

    @property
    def bytes_moved(self) -> float:
        return 2.0 * self.rows * self.columns * SIZE_BYTES[self.dtype]

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, **asdict(self)}

    @classmethod
    def from_dict(cls, row: Mapping[str, Any]) -> SoftmaxProblem:
        """Raises ValueError for what no such problem is."""
        if not {"rows", "columns"} <= row.keys() <= {"rows", "columns", "dtype"}:
            raise ValueError("a softmax has rows, columns and dtype")
        if any(type(row[key]) is not int or not 0 < row[key] < 2**31 for key in ("rows", "columns")):
            raise ValueError("rows and columns are positive integers")
        if row.get("dtype", "fp32") not in SIZE_BYTES:
            raise ValueError(f"dtype is one of {', '.join(SIZE_BYTES)}")
        return cls(**row)

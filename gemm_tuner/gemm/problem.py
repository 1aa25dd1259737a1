"""The problem record of a GEMM: sizes, types, layouts, scales and epilogue.

Sizes are in elements unless a name ends in a unit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from enum import Enum
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from gemm_tuner.core.dtypes import DTYPES
from gemm_tuner.core.records import Problem
from gemm_tuner.system.conversion import converted


class Layout(str, Enum):
    """How a matrix is stored: ROW is row-major (elements of a row are adjacent), COL is column-major."""

    ROW = "row"
    COL = "col"


ACTIVATIONS = ("none", "relu", "gelu", "silu")
# One scale per matrix; per row of A and column of B; or per block of 1 x 128 of A and 128 x 128 of B.
SCALINGS = ("none", "tensor", "row_col", "block")
SCALE_BLOCK = 128
PRECISIONS = ("ieee", "tf32")
MAX_DIMENSION = 2**31 - 1
MAX_BATCH = 65535  # limit of the grid axis that the batch uses

# Types of the values that ``GemmProblem.from_dict`` accepts.
_Dimension = Annotated[int, Meta(ge=1, le=MAX_DIMENSION)]
_Dtype = Annotated[str, Meta(pattern=f"^({'|'.join(DTYPES)})\\Z")]
_Factor = Annotated[float, Meta(gt=-3.5e38, lt=3.5e38)]  # of fp32


@dataclass(frozen=True, slots=True)
class GemmProblem:
    """C[m, n] = activation(alpha * (scaled A[m, k] @ scaled B[k, n]) + beta * C_in[m, n] + bias[n]), for ``batch``
    matrices.

    Products are summed in fp32; int8 products in int32. The bias has dtype_c and is the same for all matrices of a
    batch.

    activation: one of ACTIVATIONS; gelu is the exact one, with erf.
    scaling:    one of SCALINGS. Scales are fp32: scale_a is (1,), (m,) or (m, ceil(k / 128)), scale_b is (1,), (n,)
                or (ceil(n / 128), ceil(k / 128)).
    precision:  how fp32 is multiplied: ieee, or tf32, which keeps 10 fraction bits. Always ieee for other types.
    """

    kind: ClassVar[str] = "gemm"
    m: _Dimension
    n: _Dimension
    k: _Dimension
    dtype_a: _Dtype = "bf16"
    dtype_b: _Dtype = "bf16"
    dtype_c: _Dtype = "bf16"
    layout_a: Layout = Layout.ROW
    layout_b: Layout = Layout.ROW
    batch: Annotated[int, Meta(ge=1, le=MAX_BATCH)] = 1
    bias: bool = False
    activation: Annotated[str, Meta(pattern=f"^({'|'.join(ACTIVATIONS)})\\Z")] = "none"
    alpha: _Factor = 1.0
    beta: _Factor = 0.0
    scaling: Annotated[str, Meta(pattern=f"^({'|'.join(SCALINGS)})\\Z")] = "none"
    precision: Annotated[str, Meta(pattern=f"^({'|'.join(PRECISIONS)})\\Z")] = "ieee"

    @property
    def flops(self) -> int:
        """Floating-point operations of the product: one multiplication and one addition per term."""
        return 2 * self.batch * self.m * self.n * self.k

    @property
    def bytes_moved(self) -> int:
        """Least traffic to device memory: A, B, C_in, bias and scales read once, C written once."""
        size_a, size_b, size_c = (DTYPES[d].size_bytes for d in (self.dtype_a, self.dtype_b, self.dtype_c))
        matrices = self.m * self.k * size_a + self.k * self.n * size_b + self.m * self.n * size_c
        if self.reads_c:
            matrices += self.m * self.n * size_c
        vectors = self.n * size_c if self.bias else 0
        return self.batch * matrices + vectors + 4 * sum(rows * columns for rows, columns in self.scale_shapes)

    @property
    def reads_c(self) -> bool:
        """Whether there is a C_in."""
        return self.beta != 0.0

    @property
    def has_alpha(self) -> bool:
        return self.alpha != 1.0

    @property
    def rate_key(self) -> str:
        """The key of Device.matmul_tflops for the rate of its products."""
        return "tf32" if self.precision == "tf32" else self.dtype_a

    @property
    def sum_dtype(self) -> str:
        """The type in which products are summed: int32 for int8, else fp32."""
        return "int32" if self.dtype_a == "int8" else "fp32"

    @property
    def scale_shapes(self) -> tuple[tuple[int, int], ...]:
        """(rows, columns) of scale_a and scale_b; empty without scales."""
        groups_k, groups_n = -(-self.k // SCALE_BLOCK), -(-self.n // SCALE_BLOCK)
        shapes = {
            "none": (),
            "tensor": ((1, 1), (1, 1)),
            "row_col": ((self.m, 1), (self.n, 1)),
            "block": ((self.m, groups_k), (groups_n, groups_k)),
        }
        return shapes[self.scaling]

    @property
    def subject(self) -> str:
        return self.kind

    @property
    def shape(self) -> str:
        """M, N and K, such as ``512 x 512 x 512``, and the batch if it is not 1."""
        batch = f"{self.batch} of " if self.batch > 1 else ""
        return f"{batch}{self.m} x {self.n} x {self.k}"

    @property
    def signature(self) -> str:
        """Identifies what is compiled into a kernel instead of passed to it: types, layouts, scales, epilogue."""
        types = (
            self.dtype_a
            if self.dtype_a == self.dtype_b == self.dtype_c
            else "_".join((self.dtype_a, self.dtype_b, self.dtype_c))
        )
        layouts = "".join("n" if layout == Layout.ROW else "t" for layout in (self.layout_a, self.layout_b))
        parts = (
            *("tf32" if self.precision == "tf32" else "", f"scale_{self.scaling}" if self.scaling != "none" else ""),
            *("alpha" if self.has_alpha else "", "beta" if self.reads_c else "", "bias" if self.bias else ""),
            *(self.activation if self.activation != "none" else "", "batched" if self.batch > 1 else ""),
        )
        return "_".join((types, layouts, *(part for part in parts if part)))

    @property
    def key(self) -> str:
        """A unique name that is valid as a file name, such as ``4096x4096x4096_bf16_nn``."""
        batch = f"{self.batch}x" if self.batch > 1 else ""
        factors = f"_{self.alpha!r}" if self.has_alpha else ""
        factors += f"_{self.beta!r}" if self.reads_c else ""
        return f"{batch}{self.m}x{self.n}x{self.k}_{self.signature}{factors}"

    def as_class(self) -> GemmProblem:
        """The problem with neutral sizes and factors: the properties that the kernel's source may depend on."""
        alpha, beta = 2.0 if self.has_alpha else 1.0, 1.0 if self.reads_c else 0.0
        return replace(self, m=0, n=0, k=0, batch=2 if self.batch > 1 else 1, alpha=alpha, beta=beta)

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, **msgspec.to_builtins(self)}

    @classmethod
    def from_dict(cls, row: Mapping[str, Any]) -> GemmProblem:
        """The inverse of ``to_dict``, with or without ``kind``.

        Raises ValueError for an invalid row; keys of problems become parts of paths.
        """
        values = {key: value for key, value in row.items() if key != "kind"}
        unknown = [key for key in values if key not in [field.name for field in fields(cls)]]
        if unknown or not {"m", "n", "k"} <= values.keys():
            raise ValueError(f"has an unknown key, {str(unknown[0])[:60]!r}" if unknown else "lacks m, n or k")
        try:
            return converted(values, cls)
        except msgspec.ValidationError as error:
            key = str(error).partition("`$.")[2].rstrip("`")
            raise ValueError(f"{key} is {repr(values[key])[:60]}, which no problem has") from None


def as_gemm(problem: Problem) -> GemmProblem:
    """``problem`` as a GemmProblem. Raises TypeError for another kind."""
    if not isinstance(problem, GemmProblem):
        raise TypeError(f"{problem.key} is a problem of the kind {problem.kind}, not {GemmProblem.kind}")
    return problem

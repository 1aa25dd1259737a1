"""A fused MoE layer at one number of tokens, as a problem of the tuner."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from gemm_tuner.core.errors import UserError
from gemm_tuner.kernels.taken import TakenKernel
from gemm_tuner.system.conversion import converted

MAX_DIMENSION = 2**24
MOST_ROUTED = 2**26  # tokens times experts
DTYPES = ("bf16", "fp16", "fp8_w8a8", "int8_w8a16", "int4_w4a16")
SIXTEEN_BIT = ("bf16", "fp16")
INTEGERS = ("int8_w8a16", "int4_w4a16")
SCALINGS = ("none", "tensor", "channel", "block", "group")
FP8 = ("fp8_e4m3", "fp8_e4m3_fnuz")
# Without the suffix "_no_mul", the up-projection computes a gate and a value for each intermediate element.
ACTIVATIONS = (
    *("silu", "gelu", "gelu_tanh", "relu2", "swigluoai", "swiglustep"),
    *("silu_no_mul", "gelu_no_mul", "gelu_tanh_no_mul", "relu2_no_mul"),
)
NO_GATE = "_no_mul"
UNIFORM = "uniform"
SEEDS = 3

Size = Annotated[int, Meta(ge=1, le=MAX_DIMENSION)]
Experts = Annotated[int, Meta(ge=0, le=MAX_DIMENSION)]


@dataclass(frozen=True, slots=True)
class MoeProblem:
    """Both GEMMs of a layer on one rank: tokens [M, K] by w1 [E, gates * N, K], then [M * topk, N] by w2 [E, K, N].

    server:      the server whose kernel and launch are measured; "own" for this package's kernel.
    N:           intermediate size on this rank. K: hidden size.
    dtype:       of weights and activations, one of DTYPES. out: type of tokens and results, bf16 or fp16.
    fp8:         encoding of 8-bit floats for fp8_w8a8.
    block_shape: (rows, columns) of w that share a scale, of scaling "block"; (0, columns) of "group", where a row of
                 integers has a scale for each group of columns; else (0, 0).
    zero_points: groups have one each, beside their scale.
    global_E:    experts of all ranks, over which tokens are routed: rows of other ranks have the expert id -1, and
                 zeros as results. 0: all rows are of this rank's E experts.
    beside:      this package's own kernel is measured beside the server's, whose configurations alone can win.
    routing:     distributions (see ``routing``); calls alternate between ``seeds`` draws of each.
    kernel_sha:  hash of the kernel; "" without one. kernel: its text; None for a problem from a results row.
    """

    kind: ClassVar[str] = "moe"
    server: str
    M: int
    E: int
    N: int
    K: int
    topk: int
    dtype: str = "bf16"
    out: str = "bf16"
    scaling: str = "none"
    block_shape: tuple[int, int] = (0, 0)
    activation: str = "silu"
    bias: bool = False
    fp8: str = "fp8_e4m3"
    routing: tuple[str, ...] = (UNIFORM,)
    seeds: int = SEEDS
    kernel_sha: str = ""
    zero_points: bool = False
    global_E: int = 0
    kernel: TakenKernel | None = field(default=None, compare=False, repr=False)
    beside: bool = field(default=False, compare=False, repr=False)

    @property
    def m(self) -> int:
        """M, by the name that exports use."""
        return self.M

    @property
    def gates(self) -> int:
        """Number of up-projection columns per intermediate element: 2 with a gate, else 1."""
        return 1 if self.activation.endswith(NO_GATE) else 2

    @property
    def gate(self) -> str:
        """How columns of the up-projection hold gates and values: "halves", "pairs" of one each, or "" for no gate."""
        return "" if self.gates == 1 else "pairs" if self.activation == "swigluoai" else "halves"

    @property
    def rows(self) -> int:
        """M * topk."""
        return self.M * self.topk

    @property
    def routed_E(self) -> int:
        """The experts that tokens are routed over, of which the first E are this rank's."""
        return self.global_E or self.E

    @property
    def packed(self) -> int:
        """Elements of w in a byte or a 16-bit float."""
        return 2 if self.dtype == "int4_w4a16" else 1

    @property
    def grouped(self) -> bool:
        """Whether the server's other kernel multiplies it, which is for integers with scales of groups."""
        return self.scaling == "group"

    @property
    def weight_bytes(self) -> float:
        """Bytes of one weight element."""
        return 2 if self.dtype in SIXTEEN_BIT else 1 / self.packed

    @property
    def key(self) -> str:
        quantised = "" if self.scaling == "none" else f"_{self.scaling}"
        block = "x".join(str(one) for one in self.block_shape if one)
        block += "zero" if self.zero_points else ""
        extras = [self.activation] * (self.activation != "silu") + ["bias"] * self.bias
        other = [] if self.routing == (UNIFORM,) else [re.sub("[^A-Za-z0-9.]+", "-", "-".join(self.routing))]
        out = [self.out] if self.out != self.dtype else []
        rest = [*out, *extras, *other, *([f"seeds{self.seeds}"] if self.seeds != SEEDS else [])]
        experts = f"{self.E}of{self.global_E}" if self.global_E else str(self.E)
        parts = [f"moe_{self.server}_E{experts}_N{self.N}_K{self.K}_top{self.topk}_M{self.M}"]
        fp8 = "fnuz" if self.fp8.endswith("fnuz") and self.dtype == "fp8_w8a8" else ""
        return "_".join(
            [
                *parts,
                f"{self.dtype}{fp8}{quantised}{block}",
                *rest,
                *([] if self.server == "own" else [self.kernel_sha or "no-kernel"]),
            ]
        )

    @property
    def signature(self) -> str:
        """Identifies the source, which is the kernel's and does not depend on sizes."""
        return f"{self.server}_{self.kernel_sha or 'none'}"

    @property
    def subject(self) -> str:
        return f"{self.server} {self.dtype}"

    @property
    def shape(self) -> str:
        of_all = f" of {self.global_E}" if self.global_E else ""
        return f"E={self.E}{of_all} N={self.N} K={self.K} top {self.topk} M={self.M}"

    @property
    def flops(self) -> float:
        mine = self.rows * self.E / self.routed_E
        return 2.0 * mine * self.N * self.K * (self.gates + 1)

    @property
    def bytes_moved(self) -> float:
        """The weights of the experts that uniform routing is expected to use, and each activation once."""
        touched = self.E * (1 - (1 - self.topk / self.routed_E) ** self.M)
        weights = touched * self.N * self.K * (self.gates + 1) * self.weight_bytes
        read = self.M * self.K + self.rows * self.N
        return (
            weights + read * (1 if self.dtype == "fp8_w8a8" else 2) + 2.0 * self.rows * (self.gates * self.N + self.K)
        )

    @property
    def rate_key(self) -> str:
        """The rate of the products; int8 weights are multiplied as 16-bit floats."""
        return self.fp8 if self.dtype == "fp8_w8a8" else self.out

    def at(self, tokens: int) -> MoeProblem:
        return replace(self, M=tokens)

    def row(self) -> dict[str, Any]:
        """The keys of a results row: neither the kernel's text nor what it is measured beside."""
        row = {key: getattr(self, key) for key in KEYS}
        return {"kind": self.kind, **row, "block_shape": list(self.block_shape), "routing": list(self.routing)}

    def to_dict(self) -> dict[str, Any]:
        of_a_run = {"kernel": asdict(self.kernel)} if self.kernel else {}
        return {**self.row(), **of_a_run, **({"beside": True} if self.beside else {})}

    @classmethod
    def from_dict(cls, row: Mapping[str, Any]) -> MoeProblem:
        """The inverse of ``to_dict`` and ``row``, without ``kind``. Raises ValueError for an invalid row."""
        try:
            fields = msgspec.structs.asdict(converted(dict(row), _Row))
        except msgspec.ValidationError as error:
            raise ValueError(str(error)) from error
        kernel = fields.pop("kernel")
        try:
            made = cls(**fields, kernel=None if kernel is None else TakenKernel.from_dict(kernel))
            check(made, "the problem")
        except UserError as error:
            raise ValueError(error.one_line()) from error
        return made


class _Row(msgspec.Struct, forbid_unknown_fields=True):
    server: str
    M: Size
    E: Size
    N: Size
    K: Size
    topk: Size
    dtype: str = "bf16"
    out: str = "bf16"
    scaling: str = "none"
    block_shape: tuple[int, int] = (0, 0)
    activation: str = "silu"
    bias: bool = False
    fp8: str = "fp8_e4m3"
    routing: tuple[str, ...] = (UNIFORM,)
    seeds: Size = SEEDS
    kernel_sha: str = ""
    zero_points: bool = False
    global_E: Experts = 0
    kernel: dict[str, Any] | None = None
    beside: bool = False


KEYS = tuple(name for name in _Row.__struct_fields__ if name not in ("kernel", "beside"))


def check(problem: MoeProblem, where: str) -> None:
    """Raises UserError for values that are invalid or incompatible."""
    from gemm_tuner.moe import routing

    for key, known in (
        ("dtype", DTYPES), ("out", SIXTEEN_BIT), ("scaling", SCALINGS), ("activation", ACTIVATIONS), ("fp8", FP8)
    ):  # fmt: skip
        if getattr(problem, key) not in known:
            raise UserError(f"{key} is {str(getattr(problem, key))[:60]!r}", where=where, accepted=", ".join(known))
    if 0 < problem.global_E <= problem.E:
        what = f"all ranks have {problem.global_E} experts, and this one {problem.E} of them"
        raise UserError(what, where=where, accepted="--global_experts above --E")
    if problem.topk > problem.routed_E:
        what = f"topk {problem.topk} is more than {problem.routed_E} experts"
        raise UserError(what, where=where, accepted=f"topk up to {'--global_experts' if problem.global_E else 'E'}")
    if problem.scaling not in SCALINGS_OF[problem.dtype]:
        accepted = f"scaling {' or '.join(SCALINGS_OF[problem.dtype])}"
        raise UserError(f"{problem.dtype} has no scaling {problem.scaling}", where=where, accepted=accepted)
    given = tuple(map(bool, problem.block_shape))
    if given != SHAPES.get(problem.scaling, (False, False)) or min(problem.block_shape) < 0:
        raise UserError(f"block_shape is {list(problem.block_shape)}", where=where, accepted="ROWS,COLUMNS of a scale")
    if problem.zero_points and not problem.grouped:
        raise UserError(f"{problem.dtype} has no zero points", where=where, accepted="integers in groups")
    if problem.grouped and problem.bias:
        raise UserError("integers in groups have no bias", where=where, accepted="no bias")
    if problem.packed > 1 and (problem.N % 2 or problem.K % 2):
        what = f"N {problem.N} or K {problem.K} is odd, and two integers of 4 bits lie in a byte"
        raise UserError(what, where=where, accepted="even extents")
    if any(problem.block_shape):
        rows, columns = problem.block_shape[0] or 1, problem.block_shape[1]
        if problem.N % rows or problem.N % columns or problem.K % rows or problem.K % columns:
            share = f"block_shape {rows},{columns}" if problem.block_shape[0] else f"the group size {columns}"
            what = f"N {problem.N} or K {problem.K} is no multiple of {share}"
            raise UserError(what, where=where, accepted="whole blocks", hint="a smaller --tp leaves a larger N")
    check_tokens(problem.M, problem.routed_E, where)
    for one in problem.routing:
        routing.parse(one)


def check_tokens(tokens: int, experts: int, where: str) -> None:
    """Raises UserError for more tokens than routing can be drawn of, which takes some memory for each pair of a token
    and an expert."""
    if tokens * experts > MOST_ROUTED:
        accepted = f"up to {MOST_ROUTED // experts} of {experts} experts"
        raise UserError(f"{tokens} tokens are more than can be routed here", where=where, accepted=accepted)


SCALINGS_OF = {
    "bf16": ("none",),
    "fp16": ("none",),
    "fp8_w8a8": ("tensor", "channel", "block"),
    "int8_w8a16": ("channel", "group"),
    "int4_w4a16": ("group",),
}
# Which of block_shape's numbers a scaling has.
SHAPES = {"block": (True, True), "group": (False, True)}

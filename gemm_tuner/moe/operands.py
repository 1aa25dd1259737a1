"""Creates the operands of both GEMMs. Needs torch.

The second GEMM has its own input, similar to the activation's output, so that each GEMM is measured and checked
separately.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from gemm_tuner.core.dtypes import DTYPES, STORED
from gemm_tuner.moe import alignment, model
from gemm_tuner.moe.launch import DOWN, PARTS, UP, Sides, Tensors, extent, placed_rows, sides
from gemm_tuner.moe.launchers import of_problem
from gemm_tuner.moe.problem import MoeProblem

if TYPE_CHECKING:
    from gemm_tuner.moe.routing import Ids

PLAIN = Sides()
# Standard deviation of weights: with activations of standard deviation 1, results grow like sqrt(K / 256).
WEIGHT_STD = 1 / 16
# Approximate standard deviation of quantized values before rounding to int8.
INT8_STD = 40.0
# Of integers of 4 and of 8 bits, all equally likely.
INTEGER_STD = {"int4_w4a16": 4.6, "int8_w8a16": 74.0}


@dataclass(frozen=True)
class Gemm:
    """The tensors of one GEMM that do not depend on the routing."""

    a: Any
    w: Any
    c: Any
    a_scale: Any
    w_scale: Any
    bias: Any
    zero: Any = None

    def converted(self, widened: Callable[[Any], Any]) -> Gemm:
        """With a result of fp32."""
        inputs = {name: widened(getattr(self, name)) for name in ("a", "w", "w_scale", "bias")}
        return replace(self, **inputs, c=self.c.float())


@dataclass(frozen=True)
class MoeOperands:
    """The operands for one draw of the routing; draws share the tensors ``gemms``.

    router:  fp32 weight of each row. ids: (tokens, topk), those from E on of other ranks.
    aligned: sorted rows by BLOCK_SIZE_M, created on demand; placed: of each GEMM A and its scales with their rows where
             they are placed; results: C of each GEMM with as many rows, which draws share.
    by_expert: ``sorted_rows.of`` this, once created.
    wide:    created by ``interpretable``.
    """

    problem: MoeProblem
    gemms: dict[str, Gemm]
    router: Any
    ids: Ids
    aligned: dict[int, tuple[Any, Any, Any]] = field(default_factory=dict)
    placed: dict[tuple[str, int], tuple[Any, Any]] = field(default_factory=dict)
    results: dict[str, Any] = field(default_factory=dict)
    by_expert: list[Any] = field(default_factory=list)
    wide: bool = False

    def interpretable(self) -> MoeOperands:
        """The same values in types that Triton's interpreter multiplies correctly (``gemm.operands.interpretable``)."""
        wider = {name: interpretable_type(name) for name in (self.problem.out, self.problem.fp8)}
        if self.problem.dtype.startswith("int"):  # integers are multiplied in the type of the result
            wider[self.problem.out] = "fp32"
        types = {_torch(name): _torch(wide) for name, wide in wider.items()}

        def widened(tensor: Any) -> Any:
            return None if tensor is None else tensor.to(types.get(tensor.dtype, tensor.dtype))

        gemms = {part: one.converted(widened) for part, one in self.gemms.items()}
        return replace(self, gemms=gemms, wide=True, placed={}, results={})

    def of_config(self, config: dict[str, Any]) -> dict[str, Tensors]:
        """The tensors of both GEMMs of a configuration."""
        return {part: self.tensors(part, config["BLOCK_SIZE_M"], sides(config, part)) for part in PARTS}

    def tensors(self, part: str, block_m: int, of: Sides = PLAIN) -> Tensors:
        one, (row_ids, experts, total) = self.gemms[part], self.alignment(block_m)
        a, a_scale = self._placed(part, block_m) if of.a_sorted else (one.a, one.a_scale)
        c = self._sorted_result(part, block_m) if of.c_sorted else one.c
        given = a, one.w, c, a_scale, one.w_scale, one.zero, one.bias, self.router, row_ids, experts, total
        return Tensors(*given, wide=self.wide)

    def _placed(self, part: str, block_m: int) -> tuple[Any, Any]:
        """A of the second GEMM, and its scales; places that no row has hold some row."""
        if (part, block_m) not in self.placed:
            one, rows = self.gemms[part], self.alignment(block_m)[0][: placed_rows(self.problem, block_m)]
            source = rows.long().clamp(max=self.problem.rows - 1)
            scale = None if one.a_scale is None else one.a_scale[source]
            # Not all devices gather 8-bit floats.
            self.placed[part, block_m] = one.a.view(_bits(one.a))[source].view(one.a.dtype), scale
        return self.placed[part, block_m]

    def _sorted_result(self, part: str, block_m: int) -> Any:
        import torch

        columns, c = extent(self.problem, part).columns, self.gemms[part].c
        count = placed_rows(self.problem, block_m) * columns
        if part not in self.results or self.results[part].numel() < count:
            self.results[part] = torch.empty(count, dtype=c.dtype, device=c.device)
        return self.results[part][:count].view(-1, columns)

    def in_rows(self, c: Any, block_m: int) -> Any:
        """A sorted result by rows of the routing; NaN for a row that has no place."""
        import torch

        row_ids = self.alignment(block_m)[0][: len(c)].long()
        real = row_ids < self.problem.rows
        found = torch.full((self.problem.rows, c.shape[1]), float("nan"), dtype=c.dtype, device=c.device)
        found[row_ids[real]] = c[real]
        return found

    def alignment(self, block_m: int) -> tuple[Any, Any, Any]:
        """(sorted rows, expert of each block, total number of rows), on the device."""
        import torch

        if block_m not in self.aligned:
            server = of_problem(self.problem)
            length = server.room(self.problem, block_m) if server.sorts(self.problem) else 0
            found = alignment.align(self.ids, self.problem.E, block_m, length, server.buckets(self.problem))
            device = self.router.device
            row_ids = None if found.row_ids is None else torch.from_numpy(found.row_ids).to(device)
            total = torch.tensor([found.total], dtype=torch.int32, device=device)
            self.aligned[block_m] = row_ids, torch.from_numpy(found.experts).to(device), total
        return self.aligned[block_m]


def make(problem: MoeProblem, seed: int, device: str) -> list[MoeOperands]:
    """The operands for each draw of the routing; equal seeds give equal values for every server."""
    import torch

    generator = torch.Generator(device=device).manual_seed(seed)
    gemms = {part: _gemm(problem, part, generator, device) for part in PARTS}
    router = torch.rand(problem.rows, generator=generator, device=device) + 0.5
    results: dict[str, Any] = {}
    return [MoeOperands(problem, gemms, router, ids, results=results) for ids in model.draws(problem)]


def _gemm(problem: MoeProblem, part: str, generator: Any, device: str) -> Gemm:
    import torch

    of, out = extent(problem, part), _torch(problem.out)
    a_type = out if problem.dtype != "fp8_w8a8" else _torch(problem.fp8)
    a = torch.randn(of.rows_a, of.depth, generator=generator, device=device).to(a_type)
    w = torch.empty(problem.E, of.columns, of.depth // problem.packed, dtype=weight_type(problem), device=device)
    for expert in range(problem.E):  # one at a time, because all of them would not fit in fp32
        if problem.grouped:
            w[expert] = torch.randint(0, 256, w.shape[1:], generator=generator, device=device, dtype=torch.uint8)
            continue
        values = torch.randn(of.columns, of.depth, generator=generator, device=device)
        w[expert] = quantised(problem, values)
    c = torch.full((problem.rows, of.columns), float("nan"), dtype=out, device=device)
    scales = {
        name: torch.rand(shape, generator=generator, device=device) * 0.5 + 0.75
        for name, shape in scale_shapes(problem, part).items()
    }
    bias = torch.randn(problem.E, of.columns, generator=generator, device=device).to(out) if problem.bias else None
    zero = None
    if problem.grouped:
        scales["w"] = (scales["w"] * (WEIGHT_STD / INTEGER_STD[problem.dtype])).to(out)
    if problem.zero_points:
        low, high = (0, 256) if problem.packed > 1 else (120, 137)
        shape = zero_shape(problem, part)
        zero = torch.randint(low, high, shape, generator=generator, device=device, dtype=torch.uint8)
    return Gemm(a, w, c, scales.get("a"), scales.get("w"), bias, zero)


def weight_type(problem: MoeProblem) -> Any:
    return _torch(weight_name(problem))


def weight_name(problem: MoeProblem) -> str:
    """A key of ``core.dtypes``."""
    return (
        "uint8"
        if problem.grouped
        else {"fp8_w8a8": problem.fp8, "int8_w8a16": "int8"}.get(problem.dtype, problem.dtype)
    )


def zero_shape(problem: MoeProblem, part: str) -> tuple[int, int, int]:
    """Of zero points: 4-bit ones lie two in a byte along the rows of w."""
    of = extent(problem, part)
    return problem.E, of.columns // problem.packed, of.depth // problem.block_shape[1]


def interpretable_type(name: str) -> str:
    return "fp16" if DTYPES[name].is_fp8 else "fp32" if name == "bf16" else name


def _bits(tensor: Any) -> Any:
    """The unsigned type of one byte for 8-bit floats, any other type itself."""
    import torch

    return torch.uint8 if tensor.element_size() == 1 else tensor.dtype


def _torch(name: str) -> Any:
    import torch

    return getattr(torch, STORED[name].torch_name)


def quantised(problem: MoeProblem, values: Any) -> Any:
    if problem.dtype == "int8_w8a16":
        return (values * INT8_STD).round().clamp(-127, 127).to(weight_type(problem))
    return (values * (WEIGHT_STD if problem.dtype != "fp8_w8a8" else 1.0)).to(weight_type(problem))


def scale_shapes(problem: MoeProblem, part: str) -> dict[str, tuple[int, ...]]:
    """The shapes of A's (a) and w's (w) scales, if the problem has them."""
    of = extent(problem, part)
    if problem.scaling == "none":
        return {}
    if problem.scaling == "tensor":
        return {"a": (1,), "w": (problem.E,)}
    if problem.scaling == "block":
        rows, columns = problem.block_shape
        groups = -(-of.depth // columns)
        return {"a": (of.rows_a, groups), "w": (problem.E, -(-of.columns // rows), groups)}
    if problem.grouped:
        return {"w": (problem.E, of.columns, of.depth // problem.block_shape[1])}
    of_a: dict[str, tuple[int, ...]] = {} if problem.dtype == "int8_w8a16" else {"a": (of.rows_a, 1)}
    return {**of_a, "w": (problem.E, of.columns)}


def blank(problem: MoeProblem, part: str, block_m: int, sides: Sides, make_blank: Any) -> Tensors:
    """As ``MoeOperands.tensors``, with placeholders."""
    of, placed = extent(problem, part), placed_rows(problem, block_m)
    a_type = problem.fp8 if problem.dtype == "fp8_w8a8" else problem.out
    w_type = weight_name(problem)
    sizes = {name: _count(shape) for name, shape in scale_shapes(problem, part).items()}
    if sides.a_sorted and "a" in sizes:
        sizes["a"] = sizes["a"] // of.rows_a * placed
    server = of_problem(problem)
    room = server.room(problem, block_m)
    return Tensors(
        a=make_blank(a_type, (placed if sides.a_sorted else of.rows_a) * of.depth),
        w=make_blank(w_type, problem.E * of.columns * of.depth // problem.packed),
        c=make_blank(problem.out, (placed if sides.c_sorted else problem.rows) * of.columns),
        a_scale=make_blank("fp32", sizes["a"]) if "a" in sizes else None,
        w_scale=make_blank(problem.out if problem.grouped else "fp32", sizes["w"]) if "w" in sizes else None,
        zero=make_blank("uint8", _count(zero_shape(problem, part))) if problem.zero_points else None,
        bias=make_blank(problem.out, problem.E * of.columns) if problem.bias else None,
        router=make_blank("fp32", problem.rows),
        row_ids=make_blank("int32", room) if server.sorts(problem) else None,
        experts=make_blank("int32", -(-room // block_m) if server.sorts(problem) else problem.rows),
        total=make_blank("int32", 1),
    )


def _count(shape: tuple[int, ...]) -> int:
    found = 1
    for extent_ in shape:
        found *= extent_
    return found


def bytes_of(problem: MoeProblem, backend: str, *, by_tma: bool) -> int:
    """Device memory for the operands, including one expert's weights in fp32 during their creation. by_tma: whether the
    device has TMA."""
    total = sorted_bytes(problem, backend) if by_tma else 0
    for part in (UP, DOWN):
        of = extent(problem, part)
        total += int(problem.E * of.columns * of.depth * problem.weight_bytes) + 4 * of.columns * of.depth
        total += 6 * of.rows_a * of.depth + 2 * problem.rows * of.columns
    return total


def sorted_bytes(problem: MoeProblem, backend: str) -> int:
    """Of the tensors of configurations with TMA: for each draw and BLOCK_SIZE_M of the space the second GEMM's A with
    its scales, and the largest C of the first one."""
    server = of_problem(problem)
    if not server.has_tma(problem, backend):
        return 0
    of, a_scale = extent(problem, DOWN), scale_shapes(problem, DOWN).get("a", (0, 0))
    row_bytes = of.depth * (1 if problem.dtype == "fp8_w8a8" else 2) + 4 * a_scale[1]
    rows = [placed_rows(problem, block_m) for block_m in server.axes(problem, backend)["BLOCK_SIZE_M"]]
    draws = len(problem.routing) * problem.seeds
    return draws * sum(rows) * row_bytes + max(rows) * 2 * extent(problem, UP).columns

"""Creates the operands for timing and checking."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from gemm_tuner.core.dtypes import DTYPES
from gemm_tuner.gemm.problem import GemmProblem, Layout

INIT_TYPES = ("randn", "hpl", "trig_float", "zeros")
# Integers are drawn from -INT8_LARGEST to INT8_LARGEST: a symmetric range, so that their mean is zero.
INT8_LARGEST = 127
# Initial content of an int32 C, since int32 has no NaN; no sum of int8 products reaches this value.
INT32_SENTINEL = -(2**31)
# Range of the scales. A draw is never exactly 1, so that a kernel that omits a scale gives a wrong result.
SCALE_RANGE = (0.5, 2.0)


@dataclass(frozen=True, slots=True)
class Operands:
    """Tensors and scale factors of one call; tensors that the problem does not have are None.

    All tensors are contiguous. a is (m, k) if row-major and (k, m) if column-major; b likewise; c and c_in are (m, n).
    A batch of more than 1 is an additional first dimension.
    bias: (n,) of dtype_c. scale_a, scale_b: fp32, (1,) each, (m,) and (n,), or (m, ceil(k / 128)) and
    (ceil(n / 128), ceil(k / 128)); the same for every matrix of a batch.
    """

    a: Any
    b: Any
    c: Any
    bias: Any = None
    c_in: Any = None
    scale_a: Any = None
    scale_b: Any = None
    alpha: float = 1.0
    beta: float = 0.0

    def logical(self, problem: GemmProblem) -> tuple[Any, Any]:
        """Views of A as (batch, m, k) and B as (batch, k, n); without the first dimension if the batch is 1."""
        a = self.a if problem.layout_a == Layout.ROW else self.a.transpose(-1, -2)
        b = self.b if problem.layout_b == Layout.ROW else self.b.transpose(-1, -2)
        return a, b


def torch_dtype(name: str) -> Any:
    import torch

    return getattr(torch, DTYPES[name].torch_name)


def fill(shape: tuple[int, ...], dtype: str, init_type: str, generator: Any, device: str) -> Any:
    """A tensor of one of INIT_TYPES: N(0, 1), uniform in [-0.5, 0.5), sin(index), or zeros.

    Integers: uniform for randn and hpl, 127 sin(index), or zeros. fp8: values beyond the largest number are clamped.
    """
    import torch

    kind = torch_dtype(dtype)
    if init_type == "zeros":
        return torch.zeros(shape, device=device, dtype=kind)
    if not kind.is_floating_point and init_type in ("randn", "hpl"):
        ends = (-INT8_LARGEST, INT8_LARGEST + 1)
        return torch.randint(*ends, shape, generator=generator, device=device, dtype=kind)
    if init_type == "randn":
        values = torch.randn(shape, generator=generator, device=device, dtype=torch.float32)
    elif init_type == "hpl":
        values = torch.rand(shape, generator=generator, device=device, dtype=torch.float32).sub_(0.5)
    elif init_type == "trig_float":
        values = torch.arange(math.prod(shape), device=device, dtype=torch.float32).sin_().reshape(shape)
    else:
        raise ValueError(f"init_type {init_type!r} is none of {INIT_TYPES}")
    if not kind.is_floating_point:
        values.mul_(INT8_LARGEST).round_()
    if DTYPES[dtype].is_fp8:  # a cast alone would give NaN or Inf
        values.clamp_(-torch.finfo(kind).max, torch.finfo(kind).max)
    return values.to(kind)


def make_operands(problem: GemmProblem, init_type: str, seed: int, device: str) -> Operands:
    """New operands; the same seed gives the same values on the same kind of device.

    A, B, c_in and bias are filled by init_type, scales are uniform in SCALE_RANGE, C is filled by ``unwritten``.
    """
    import torch

    generator = torch.Generator(device=device).manual_seed(seed)
    m, n, k = problem.m, problem.n, problem.k
    batch = (problem.batch,) if problem.batch > 1 else ()

    def filled(shape: tuple[int, ...], dtype: str) -> Any:
        return fill(shape, dtype, init_type, generator, device)

    def scale(shape: tuple[int, int]) -> Any:
        extents = shape if problem.scaling == "block" else shape[:1]
        low, high = SCALE_RANGE
        return torch.rand(extents, generator=generator, device=device, dtype=torch.float32).mul_(high - low).add_(low)

    a = filled((*batch, m, k) if problem.layout_a == Layout.ROW else (*batch, k, m), problem.dtype_a)
    b = filled((*batch, k, n) if problem.layout_b == Layout.ROW else (*batch, n, k), problem.dtype_b)
    bias = filled((n,), problem.dtype_c) if problem.bias else None
    c_in = filled((*batch, m, n), problem.dtype_c) if problem.reads_c else None
    scale_a, scale_b = (scale(shape) for shape in problem.scale_shapes) if problem.scale_shapes else (None, None)
    c = unwritten((*batch, m, n), problem.dtype_c, device)
    return Operands(a, b, c, bias, c_in, scale_a, scale_b, problem.alpha, problem.beta)


def unwritten(shape: tuple[int, ...], dtype: str, device: str) -> Any:
    """A tensor filled with a value that no kernel writes: NaN, or INT32_SENTINEL for int32."""
    import torch

    return unwrite(torch.empty(shape, dtype=torch_dtype(dtype), device=device), dtype)


def unwrite(c: Any, dtype: str) -> Any:
    """Fills C, of dtype_c ``dtype`` or a wider type, as ``unwritten``; returns it."""
    return c.fill_(float("nan") if torch_dtype(dtype).is_floating_point else INT32_SENTINEL)


def rotation(problem: GemmProblem, rotating_bytes: int, init_type: str, seed: int, device: str) -> list[Operands]:
    """``rotation_count`` sets of operands."""
    count = rotation_count(problem, rotating_bytes)
    return [make_operands(problem, init_type, seed + i, device) for i in range(count)]


def rotation_count(problem: GemmProblem, rotating_bytes: int) -> int:
    """How many sets of operands fit into rotating_bytes; at least 1, at most 64."""
    return max(1, min(64, rotating_bytes // problem.bytes_moved))


def require_memory(problem: GemmProblem, rotating_bytes: int, device: str) -> None:
    """Raises MemoryError if the operands will not fit, before torch tries to allocate them.

    After a failed allocation torch makes calls that end the trace of an nsys that is older than the CUDA runtime.
    """
    import torch

    if device != "cuda":
        return
    copies_bytes = problem.bytes_moved * rotation_count(problem, rotating_bytes)
    largest = max(problem.m * problem.k, problem.k * problem.n, problem.m * problem.n if problem.reads_c else 0)
    drawing_bytes = 4 * problem.batch * largest
    free_bytes, _ = torch.cuda.mem_get_info()
    if copies_bytes + drawing_bytes > free_bytes:
        needed = f"{(copies_bytes + drawing_bytes) / 2**30:.1f} GiB"
        raise MemoryError(f"out of memory: operands need {needed}, {free_bytes / 2**30:.1f} GiB are free")


def interpretable(operands: Operands) -> Operands:
    """The same values in types that Triton's interpreter multiplies correctly: bf16 as fp32, fp8 as fp16.

    tl.dot of the interpreter multiplies the bit patterns of bf16 (triton-lang/triton issue 11584), truncates results
    that a GPU rounds, and turns NaN and Inf of fp8 into numbers. Products of bf16 and fp8 are exact in fp32 and the
    caller rounds C, so the computation is the same.
    """
    import torch

    wider = {torch.bfloat16: torch.float32}
    wider.update({torch_dtype(name): torch.float16 for name, dtype in DTYPES.items() if dtype.is_fp8})

    def widened(tensor: Any) -> Any:
        return tensor if tensor is None else tensor.to(wider.get(tensor.dtype, tensor.dtype))

    return replace(operands, **{name: widened(getattr(operands, name)) for name in ("a", "b", "c", "bias", "c_in")})

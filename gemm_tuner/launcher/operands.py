"""The matrices that are timed and checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gemm_tuner.dtypes import DTYPES
from gemm_tuner.records import GemmProblem, Layout

INIT_TYPES = ("randn", "hpl", "trig_float", "zeros")


@dataclass(frozen=True, slots=True)
class Operands:
    """Tensors of one call. a and b lie as the problem's layouts say and are contiguous as stored:
    a is (m, k) when row-major and (k, m) when column-major; b likewise; c is (m, n)."""

    a: Any
    b: Any
    c: Any
    bias: Any

    def logical(self, problem: GemmProblem) -> tuple[Any, Any]:
        """A as (m, k) and B as (k, n), as views."""
        a = self.a if problem.layout_a == Layout.ROW else self.a.t()
        b = self.b if problem.layout_b == Layout.ROW else self.b.t()
        return a, b


def torch_dtype(name: str) -> Any:
    import torch

    return getattr(torch, DTYPES[name].torch_name)


def fill(shape: tuple[int, ...], dtype: str, init_type: str, generator: Any, device: str) -> Any:
    """A matrix of one of INIT_TYPES: N(0, 1), uniform in [-0.5, 0.5), sin(index), or zeros."""
    import torch

    kind = torch_dtype(dtype)
    if init_type == "randn":
        return torch.randn(shape, generator=generator, device=device, dtype=torch.float32).to(kind)
    if init_type == "hpl":
        return (torch.rand(shape, generator=generator, device=device, dtype=torch.float32) - 0.5).to(kind)
    if init_type == "trig_float":
        numel = 1
        for extent in shape:
            numel *= extent
        return torch.sin(torch.arange(numel, device=device, dtype=torch.float32)).reshape(shape).to(kind)
    if init_type == "zeros":
        return torch.zeros(shape, device=device, dtype=kind)
    raise ValueError(f"init_type {init_type!r} is none of {INIT_TYPES}")


def make_operands(problem: GemmProblem, init_type: str, seed: int, device: str) -> Operands:
    """Fresh operands; the same seed gives the same values on the same kind of device. C is NaN."""
    import torch

    generator = torch.Generator(device=device).manual_seed(seed)
    m, n, k = problem.m, problem.n, problem.k
    shape_a = (m, k) if problem.layout_a == Layout.ROW else (k, m)
    shape_b = (k, n) if problem.layout_b == Layout.ROW else (n, k)
    a = fill(shape_a, problem.dtype_a, init_type, generator, device)
    b = fill(shape_b, problem.dtype_b, init_type, generator, device)
    bias = fill((n,), problem.dtype_c, init_type, generator, device) if problem.has_bias else None
    c = torch.full((m, n), float("nan"), dtype=torch_dtype(problem.dtype_c), device=device)
    return Operands(a, b, c, bias)


def rotation(problem: GemmProblem, rotating_bytes: int, init_type: str, seed: int, device: str) -> list[Operands]:
    """As many sets of operands as fit into rotating_bytes."""
    count = rotation_count(problem, rotating_bytes)
    return [make_operands(problem, init_type, seed + i, device) for i in range(count)]


def rotation_count(problem: GemmProblem, rotating_bytes: int) -> int:
    """Sets of operands that fit into rotating_bytes, at least 1, at most 64."""
    return max(1, min(64, rotating_bytes // problem.bytes_moved))


def require_memory(problem: GemmProblem, rotating_bytes: int, device: str) -> None:
    """Raises MemoryError when the operands will not fit, before torch tries: what torch does after a failed
    allocation ends the trace of an nsys that is older than the CUDA runtime."""
    import torch

    if device != "cuda":
        return
    copies_bytes = problem.bytes_moved * rotation_count(problem, rotating_bytes)
    drawing_bytes = 4 * max(problem.m * problem.k, problem.k * problem.n)
    free_bytes, _ = torch.cuda.mem_get_info()
    if copies_bytes + drawing_bytes > free_bytes:
        needed = f"{(copies_bytes + drawing_bytes) / 2**30:.1f} GiB"
        raise MemoryError(f"out of memory: operands need {needed}, {free_bytes / 2**30:.1f} GiB are free")


def workspace(elements: int, device: str) -> Any:
    """fp32 scratch filled with NaN, so that a slice that nobody wrote shows; None for 0 elements."""
    import torch

    return torch.full((elements,), float("nan"), dtype=torch.float32, device=device) if elements else None


def vendor_call(problem: GemmProblem, operands: Operands) -> Any:
    """The same GEMM by the vendor library through torch, as a function without arguments; None
    where torch has no call for these types."""
    import torch

    a, b = operands.logical(problem)
    kinds = {problem.dtype_a, problem.dtype_b, problem.dtype_c}
    if len(kinds) > 1:
        return None
    if problem.has_bias:
        return lambda: torch.addmm(operands.bias, a, b, out=operands.c)
    return lambda: torch.mm(a, b, out=operands.c)

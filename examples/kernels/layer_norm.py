"""Layer norm of the rows of a matrix: a kernel with configurations of its own, and its host function."""

import torch
import triton
import triton.language as tl


def fitting(configs, args, **_):
    """A block wider than a row computes nothing but zeros."""
    widest = triton.next_power_of_2(args["n_cols"])
    return [config for config in configs if config.kwargs["BLOCK"] <= widest] or configs[:1]


@triton.autotune(
    configs=[triton.Config({"BLOCK": block}, num_warps=warps) for block in (512, 1024, 4096) for warps in (2, 4, 8)],
    key=["n_cols"],
    prune_configs_by={"early_config_prune": fitting},
)
@triton.jit
def layer_norm_rows(y, x, weight, bias, stride, n_cols, eps, BLOCK: tl.constexpr):
    """A program normalizes one row in blocks: sums first, then the deviations from the mean, then the values."""
    x += tl.program_id(0).to(tl.int64) * stride
    y += tl.program_id(0).to(tl.int64) * stride
    sums = tl.zeros((BLOCK,), tl.float32)
    for first in range(0, n_cols, BLOCK):
        at = first + tl.arange(0, BLOCK)
        sums += tl.load(x + at, mask=at < n_cols, other=0.0).to(tl.float32)
    mean = tl.sum(sums, 0) / n_cols
    squares = tl.zeros((BLOCK,), tl.float32)
    for first in range(0, n_cols, BLOCK):
        at = first + tl.arange(0, BLOCK)
        deviations = tl.load(x + at, mask=at < n_cols, other=0.0).to(tl.float32) - mean
        squares += tl.where(at < n_cols, deviations * deviations, 0.0)
    scale = tl.rsqrt(tl.sum(squares, 0) / n_cols + eps)
    for first in range(0, n_cols, BLOCK):
        at = first + tl.arange(0, BLOCK)
        inside = at < n_cols
        values = (tl.load(x + at, mask=inside, other=0.0).to(tl.float32) - mean) * scale
        values = values * tl.load(weight + at, mask=inside, other=0.0) + tl.load(bias + at, mask=inside, other=0.0)
        tl.store(y + at, values.to(y.dtype.element_ty), mask=inside)


def run(rows, cols, dtype="float16"):
    like = {"device": "cuda", "dtype": getattr(torch, dtype)}
    x, weight, bias = torch.randn(rows, cols, **like), torch.rand(cols, **like), torch.rand(cols, **like)
    y = torch.empty_like(x)
    layer_norm_rows[(rows,)](y, x, weight, bias, x.stride(0), cols, 1e-5)
    return y


def reference(x, weight, bias, dtype):
    return torch.nn.functional.layer_norm(x.to(dtype), x.shape[1:], weight.to(dtype), bias.to(dtype), 1e-5)

"""Host code for the kernel of vLLM's Mamba layers that updates states by one token, as vLLM 0.33 launches it.

The kernel is the server's own; this file has what vllm_ssu.yaml needs beside it: inputs, launch, reference.
"""

import torch
import triton
from mamba_ssm import _selective_scan_update_kernel

NULL = 0  # the slot of the cache that stands for none


def run(batch, nheads, headdim, dstate, ngroups, cache_dtype, dtype, BLOCK_SIZE_M=None):
    """Each sequence has a slot of the cache. A, dt, its bias and D are one number a head, as in Mamba 2. Without
    BLOCK_SIZE_M: what the server launches without a file."""
    if [*_selective_scan_update_kernel.arg_names][54:55] != ["DT_SOFTPLUS"]:
        raise ValueError("the kernel has other arguments than vLLM 0.33's")
    rows, warps = 4, 4 if dstate <= 128 else 8
    if dstate <= 64:
        rows = 32 if dstate <= 16 else 16 if dstate <= 32 else 8
    elif torch.cuda.get_device_capability()[0] == 10:
        rows, warps = 32, 8
    BLOCK_SIZE_M = BLOCK_SIZE_M or rows
    like = {"device": "cuda", "dtype": getattr(torch, dtype)}
    state = torch.randn(batch + 1, nheads, headdim, dstate, device="cuda", dtype=getattr(torch, cache_dtype))
    slots = torch.arange(batch, 0, -1, device="cuda", dtype=torch.int32)
    x, dt = torch.randn(batch, nheads, headdim, **like), torch.randn(batch, nheads, **like)
    a, d = -torch.rand(nheads, device="cuda"), torch.randn(nheads, device="cuda")
    dt_bias = torch.randn(nheads, **like)
    b, c = torch.randn(batch, ngroups, dstate, **like), torch.randn(batch, ngroups, dstate, **like)
    out = torch.empty_like(x)
    _selective_scan_update_kernel[(triton.cdiv(headdim, BLOCK_SIZE_M), batch, nheads)](
        state, None, x, dt, dt_bias, a, b, c, d, None, out, slots, slots, NULL, None, None,
        batch, nheads, headdim, dstate, nheads // ngroups,
        *state.stride(), *x.stride(), *dt.stride(), 0, 1, 0, 1, 0, 0, *b.stride(), *c.stride(), 1, 0, 0, 0, 0,
        *out.stride(), 1, 0, 1, 0,
        DT_SOFTPLUS=True, TIE_HDIM=True, BLOCK_SIZE_M=BLOCK_SIZE_M, USE_RS_ROUNDING=False, PHILOX_ROUNDS=0,
        num_warps=warps,
    )  # fmt: skip
    return out, state


def reference(
    state_ptr, x_ptr, dt_ptr, dt_bias_ptr, A_ptr, B_ptr, C_ptr, D_ptr, state_batch_indices_ptr, ngroups, dtype
):
    """(out, states): state' = state * exp(A dt) + dt x B, out = state' C + D x."""
    heads = x_ptr.shape[1]
    dt = torch.nn.functional.softplus(dt_ptr.to(dtype) + dt_bias_ptr.to(dtype))[..., None, None]
    b, c = (one.to(dtype).repeat_interleave(heads // ngroups, 1)[:, :, None] for one in (B_ptr, C_ptr))
    x, states = x_ptr.to(dtype), state_ptr.to(dtype)
    slots = state_batch_indices_ptr.long()
    new = states[slots] * torch.exp(A_ptr.to(dtype)[:, None, None] * dt) + dt * b * x[..., None]
    out = (new * c).sum(-1) + D_ptr.to(dtype)[:, None] * x
    return out, states.index_copy(0, slots, new)

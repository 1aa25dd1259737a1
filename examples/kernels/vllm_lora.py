"""Host code for the two kernels of vLLM's LoRA layers, as vLLM 0.33 launches them.

The kernels are the server's own; this file has what vllm_lora_shrink.yaml and vllm_lora_expand.yaml need beside them:
inputs, launch, reference. Every token has one of max_loras - 1 adapters, as many tokens each. Without BLOCK_M and the
others they are what the server launches without a file.
"""

import torch
import triton


def require_version(kernel, arguments):
    """arguments: those before BLOCK_M, which are given by position."""
    if [*kernel.arg_names][arguments : arguments + 1] != ["BLOCK_M"]:
        raise ValueError("the kernel has other arguments than vLLM 0.33's")


def sorted_tokens(m, max_loras):
    """(tokens by adapter, tokens of each adapter, where they start, the adapters). The last of max_loras is none."""
    count = max_loras - 1
    adapters = [token * count // m for token in range(m)]
    of_each = [adapters.count(one) for one in range(count)]
    used = [one for one in range(count) if of_each[one]]
    rest = max_loras - len(used)
    counts = [of_each[one] for one in used]
    starts = [sum(counts[:place]) for place in range(len(used) + 1)]
    like = {"device": "cuda", "dtype": torch.int32}
    tokens = [*range(0, m, 2), *range(1, m, 2)]  # of an adapter they do not lie side by side
    return (
        torch.tensor(tokens, **like),
        torch.tensor([*counts, *[0] * rest], **like),
        torch.tensor([*starts, *[m] * rest], **like),
        torch.tensor([*used, *[-1] * rest], **like),
    )


def weights(max_loras, num_slices, rows, columns, of):
    """[adapters, rows, columns] of each slice."""
    like = {"device": "cuda", "dtype": of}
    return [torch.randn(max_loras - 1, rows, columns, **like) / columns**0.5 for _ in range(num_slices)]


def pointers(tensors):
    """What the kernels take of slices: the tensor, or the addresses of several."""
    if len(tensors) == 1:
        return tensors[0]
    return torch.tensor([one.data_ptr() for one in tensors], device="cuda", dtype=torch.uint64)


def shrink(
    m, hidden_size, rank, num_slices, max_loras, dtype,
    BLOCK_M=32, BLOCK_N=16, BLOCK_K=None, SPLIT_K=None, GROUP_SIZE_M=8, num_warps=4, num_stages=2,
):  # fmt: skip
    from lora_shrink_op import _lora_shrink_kernel

    require_version(_lora_shrink_kernel, 19)
    BLOCK_K = BLOCK_K or (256 if m < 128 else 32)
    SPLIT_K = SPLIT_K or (64 if m < 128 else 8)
    x = torch.randn(m, hidden_size, device="cuda", dtype=getattr(torch, dtype))
    w = weights(max_loras, num_slices, rank, hidden_size, x.dtype)
    out = torch.zeros(num_slices, m, rank, device="cuda", dtype=torch.float32)
    grid = (SPLIT_K * triton.cdiv(m, BLOCK_M) * triton.cdiv(rank, BLOCK_N), num_slices, max_loras)
    _lora_shrink_kernel[grid](
        x, pointers(w), out, m, rank, hidden_size, *sorted_tokens(m, max_loras), 0.5,
        *x.stride(), *w[0].stride(), *out.stride(),
        BLOCK_M, BLOCK_N, BLOCK_K, hidden_size % (BLOCK_K * SPLIT_K) == 0, SPLIT_K, GROUP_SIZE_M, num_slices, False,
        launch_pdl=False, num_warps=num_warps, num_stages=num_stages,
    )  # fmt: skip
    return out


def shrink_reference(input_ptr, m, hidden_size, rank, num_slices, max_loras, dtype):
    """Kernels get addresses, so the inputs are made again: the random numbers are the same."""
    x = torch.randn(m, hidden_size, device="cuda", dtype=input_ptr.dtype).to(dtype)
    w = weights(max_loras, num_slices, rank, hidden_size, input_ptr.dtype)
    return torch.stack([0.5 * by_adapter(x, one.to(dtype), m, max_loras) for one in w])


def expand(
    m, hidden_size, rank, num_slices, max_loras, add_inputs, dtype,
    BLOCK_M=64, BLOCK_N=None, BLOCK_K=32, num_warps=4, num_stages=None,
):  # fmt: skip
    from lora_expand_op import _lora_expand_kernel

    require_version(_lora_expand_kernel, 20)
    BLOCK_N = BLOCK_N or (64 if num_slices > 1 else 128)
    num_stages = num_stages or 2
    x = torch.randn(num_slices, m, rank, device="cuda", dtype=torch.float32)
    w = weights(max_loras, num_slices, hidden_size, rank, getattr(torch, dtype))
    out = torch.randn(m, num_slices * hidden_size, device="cuda", dtype=w[0].dtype)
    starts = [hidden_size * one for one in range(num_slices)]
    start = torch.tensor(starts, device="cuda", dtype=torch.uint64) if num_slices > 1 else 0
    grid = (triton.cdiv(m, BLOCK_M) * triton.cdiv(hidden_size, BLOCK_N), num_slices, max_loras)
    is_nvidia = torch.cuda.get_device_properties("cuda").warp_size == 32
    if is_nvidia and torch.cuda.get_device_capability() == (9, 0):  # the server does so, since fp32 inputs are cast
        num_stages = 1
    _lora_expand_kernel[grid](
        x, pointers(w), out, m, hidden_size, rank, *sorted_tokens(m, max_loras), start,
        *x.stride(), *w[0].stride(), *out.stride(), hidden_size,
        BLOCK_M, BLOCK_N, BLOCK_K, rank % BLOCK_K == 0, add_inputs, True, num_slices, True, False,
        launch_pdl=False, num_warps=num_warps, num_stages=num_stages,
    )  # fmt: skip
    return out


def expand_reference(out_ptr, m, hidden_size, rank, num_slices, max_loras, add_inputs, dtype):
    x = torch.randn(num_slices, m, rank, device="cuda", dtype=torch.float32).to(out_ptr.dtype).to(dtype)
    w = weights(max_loras, num_slices, hidden_size, rank, out_ptr.dtype)
    parts = [by_adapter(x[place], one.to(dtype), m, max_loras) for place, one in enumerate(w)]
    return torch.cat(parts, dim=1) + (out_ptr.to(dtype) if add_inputs else 0)


def by_adapter(x, w, m, max_loras):
    """Each row of x by the matrix of its adapter."""
    tokens, counts, starts, adapters = (one.tolist() for one in sorted_tokens(m, max_loras))
    out = x.new_zeros(m, w.shape[1])
    for count, start, adapter in zip(counts, starts[:-1], adapters, strict=True):
        rows = tokens[start : start + count]
        if adapter >= 0:
            out[rows] = x[rows] @ w[adapter].T
    return out

"""A package with kernels of the names, places and arguments of vLLM 0.33's for Mamba states and LoRA, written for the
tests: as plain as can be. Importing it fails, as that of a server without its GPU may."""

from __future__ import annotations

from pathlib import Path

NEVER = "raise ImportError('the server is imported')\n"
SSU, SHRINK, EXPAND = (
    ("vllm/model_executor/layers/mamba/ops/mamba_ssm.py", "_selective_scan_update_kernel"),
    ("vllm/lora/ops/triton_ops/lora_shrink_op.py", "_lora_shrink_kernel"),
    ("vllm/lora/ops/triton_ops/lora_expand_op.py", "_lora_expand_kernel"),
)

_SSU = """
from vllm.logger import init_logger
from vllm.model_executor.layers.mamba.ops.helpers import softplus
from vllm.triton_utils import HAS_TRITON, tl, triton

logger = init_logger(__name__)


@triton.heuristics({"HAS_D": lambda args: args["D_ptr"] is not None})
@triton.heuristics({"HAS_Z": lambda args: args["z_ptr"] is not None})
@triton.heuristics({"BLOCK_SIZE_DSTATE": lambda args: triton.next_power_of_2(args["dstate"])})
@triton.jit(do_not_specialize=["N"])
def _selective_scan_update_kernel(
    state_ptr, rand_seed_ptr, x_ptr, dt_ptr, dt_bias_ptr, A_ptr, B_ptr, C_ptr, D_ptr, z_ptr, out_ptr,
    state_batch_indices_ptr, dst_state_batch_indices_ptr, null_block_id, num_accepted_tokens_ptr, cu_seqlens_ptr,
    N, nheads, dim, dstate, nheads_ngroups_ratio,
    stride_state_batch, stride_state_head, stride_state_dim, stride_state_dstate, stride_x_batch, stride_x_head,
    stride_x_dim, stride_dt_batch, stride_dt_head, stride_dt_dim, stride_dt_bias_head, stride_dt_bias_dim,
    stride_A_head, stride_A_dim, stride_A_dstate, stride_B_batch, stride_B_group, stride_B_dstate, stride_C_batch,
    stride_C_group, stride_C_dstate, stride_D_head, stride_D_dim, stride_z_batch, stride_z_head, stride_z_dim,
    stride_out_batch, stride_out_head, stride_out_dim, stride_state_indices_batch, stride_state_indices_T,
    stride_dst_state_indices_batch, stride_dst_state_indices_T,
    DT_SOFTPLUS: tl.constexpr, TIE_HDIM: tl.constexpr, BLOCK_SIZE_M: tl.constexpr, HAS_D: tl.constexpr,
    HAS_Z: tl.constexpr, BLOCK_SIZE_DSTATE: tl.constexpr, USE_RS_ROUNDING: tl.constexpr, PHILOX_ROUNDS: tl.constexpr,
):
    tl.static_assert(TIE_HDIM and DT_SOFTPLUS and HAS_D and not HAS_Z)
    sequence, head = tl.program_id(1), tl.program_id(2)
    group = head // nheads_ngroups_ratio
    rows = tl.program_id(0) * BLOCK_SIZE_M + tl.arange(0, BLOCK_SIZE_M)
    columns = tl.arange(0, BLOCK_SIZE_DSTATE)
    slot = tl.load(state_batch_indices_ptr + sequence * stride_state_indices_batch).to(tl.int64)
    mask = (rows[:, None] < dim) & (columns[None, :] < dstate)
    mask &= slot != null_block_id
    of_state = rows[:, None] * stride_state_dim + columns[None, :] * stride_state_dstate
    at = state_ptr + slot * stride_state_batch + head * stride_state_head + of_state
    dt = tl.load(dt_ptr + sequence * stride_dt_batch + head * stride_dt_head).to(tl.float32)
    dt = softplus(dt + tl.load(dt_bias_ptr + head * stride_dt_bias_head).to(tl.float32))
    x = tl.load(x_ptr + sequence * stride_x_batch + head * stride_x_head + rows, mask=rows < dim, other=0.0)
    b = tl.load(B_ptr + sequence * stride_B_batch + group * stride_B_group + columns, mask=columns < dstate, other=0.0)
    c = tl.load(C_ptr + sequence * stride_C_batch + group * stride_C_group + columns, mask=columns < dstate, other=0.0)
    state = tl.load(at, mask=mask, other=0.0).to(tl.float32) * tl.exp(tl.load(A_ptr + head * stride_A_head) * dt)
    state += dt * b.to(tl.float32)[None, :] * x.to(tl.float32)[:, None]
    out = tl.sum(state * c.to(tl.float32)[None, :], 1) + tl.load(D_ptr + head * stride_D_head) * x.to(tl.float32)
    tl.store(out_ptr + sequence * stride_out_batch + head * stride_out_head + rows, out, mask=rows < dim)
    tl.store(at, state.to(state_ptr.dtype.element_ty), mask=mask)
"""
_HELPERS = """
from vllm.triton_utils import tl, triton


@triton.jit
def softplus(x):
    return tl.where(x <= 20.0, tl.log(tl.exp(x) + 1), x)


@triton.jit
def rows_of(m_block, lora_idx, tokens, counts, starts, BLOCK_M: tl.constexpr):
    within = m_block * BLOCK_M + tl.arange(0, BLOCK_M)
    real = within < tl.load(counts + lora_idx)
    return tl.load(tokens + tl.load(starts + lora_idx) + within, mask=real, other=0), real
"""
_TOKENS = "token_indices_sorted_by_lora_ids, num_tokens_per_lora, lora_token_start_loc, lora_ids"
_LORA = """
from vllm.lora.ops.triton_ops.kernel_utils import rows_of
from vllm.triton_utils import tl, triton
"""
_SHRINK = f"""{_LORA}

@triton.jit
def _lora_shrink_kernel(
    input_ptr, lora_ptr, out_ptr, M, N, K, {_TOKENS}, scaling, input_d0_stride, input_d1_stride, lora_d0_stride,
    lora_d1_stride, lora_d2_stride, output_d0_stride, output_d1_stride, output_d2_stride, BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, EVEN_K: tl.constexpr, SPLIT_K: tl.constexpr,
    GROUP_SIZE_M: tl.constexpr, SLICE_NUM: tl.constexpr, USE_GDC: tl.constexpr, launch_pdl: tl.constexpr,
):
    part, block = tl.program_id(0) % SPLIT_K, tl.program_id(0) // SPLIT_K
    blocks_n = tl.cdiv(N, BLOCK_N)
    piece, adapter = tl.program_id(1), tl.load(lora_ids + tl.program_id(2))
    if adapter == -1:
        return
    rows, real = rows_of(block // blocks_n, tl.program_id(2), token_indices_sorted_by_lora_ids, num_tokens_per_lora,
                         lora_token_start_loc, BLOCK_M)
    columns = block % blocks_n * BLOCK_N + tl.arange(0, BLOCK_N)
    w = lora_ptr
    if SLICE_NUM > 1:
        w = tl.load(lora_ptr + piece).to(tl.pointer_type(input_ptr.dtype.element_ty))
    w += adapter * lora_d0_stride
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for first in range(part * BLOCK_K, K, BLOCK_K * SPLIT_K):
        depth = first + tl.arange(0, BLOCK_K)
        a = tl.load(input_ptr + rows[:, None] * input_d0_stride + depth[None, :], mask=depth[None, :] < K, other=0.0)
        inside = (depth[:, None] < K) & (columns[None, :] < N)
        total += tl.dot(a, tl.load(w + columns[None, :] * lora_d1_stride + depth[:, None], mask=inside, other=0.0))
    at = out_ptr + piece * output_d0_stride + rows[:, None] * output_d1_stride + columns[None, :]
    tl.atomic_add(at, total * scaling, mask=real[:, None] & (columns[None, :] < N))
"""
_EXPAND = f"""{_LORA}

@triton.jit
def _lora_expand_kernel(
    input_ptr, lora_ptr, out_ptr, M, N, K, {_TOKENS}, slice_start_loc, input_d0_stride, input_d1_stride,
    input_d2_stride, ls_d0_ptr, ls_d1_ptr, ls_d2_ptr, output_d0_stride, output_d1_stride, output_hs_ptr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, EVEN_K: tl.constexpr,
    ADD_INPUTS: tl.constexpr, CAST_TYPE: tl.constexpr, SLICE_NUM: tl.constexpr, SAME_STRIDE: tl.constexpr,
    USE_GDC: tl.constexpr, launch_pdl: tl.constexpr,
):
    tl.static_assert(SAME_STRIDE and CAST_TYPE)
    blocks_m = tl.cdiv(M, BLOCK_M)
    piece, adapter = tl.program_id(1), tl.load(lora_ids + tl.program_id(2))
    if adapter == -1:
        return
    rows, real = rows_of(tl.program_id(0) % blocks_m, tl.program_id(2), token_indices_sorted_by_lora_ids,
                         num_tokens_per_lora, lora_token_start_loc, BLOCK_M)
    columns = tl.program_id(0) // blocks_m * BLOCK_N + tl.arange(0, BLOCK_N)
    w = lora_ptr
    start = slice_start_loc
    if SLICE_NUM > 1:
        w = tl.load(lora_ptr + piece).to(tl.pointer_type(out_ptr.dtype.element_ty))
        start = tl.load(slice_start_loc + piece).to(tl.int64)
    w += adapter * ls_d0_ptr
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for first in range(0, K, BLOCK_K):
        depth = first + tl.arange(0, BLOCK_K)
        a_at = input_ptr + piece * input_d0_stride + rows[:, None] * input_d1_stride + depth[None, :]
        a = tl.load(a_at, mask=depth[None, :] < K, other=0.0).to(w.dtype.element_ty)
        inside = (depth[:, None] < K) & (columns[None, :] < N)
        total += tl.dot(a, tl.load(w + columns[None, :] * ls_d1_ptr + depth[:, None], mask=inside, other=0.0))
    at = out_ptr + rows[:, None] * output_d0_stride + columns[None, :] + start
    inside = real[:, None] & (columns[None, :] < N)
    result = total.to(out_ptr.dtype.element_ty)
    if ADD_INPUTS:
        result += tl.load(at, mask=inside)
    tl.store(at, result, mask=inside)
"""


def written(folder: Path) -> Path:
    """Writes the package below a folder. Returns the folder."""
    ops = "vllm/lora/ops/triton_ops"
    texts = {
        "vllm/__init__.py": NEVER,
        "vllm/triton_utils/__init__.py": NEVER,
        "vllm/model_executor/layers/mamba/ops/helpers.py": _HELPERS,
        f"{ops}/kernel_utils.py": _HELPERS,
        SSU[0]: _SSU,
        SHRINK[0]: _SHRINK,
        EXPAND[0]: _EXPAND,
    }
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder

"""Files like those of servers, written for the tests: a block-scaled kernel with a server's argument names."""

from __future__ import annotations

from pathlib import Path

VLLM, SGLANG = "_w8a8_triton_block_scaled_mm", "_w8a8_block_fp8_matmul"
# Importing this fails twice over.
SOURCE = '''
from server.triton_utils import tl, triton

raise RuntimeError("a server's file was imported")

ZERO: tl.constexpr = tl.constexpr(0.0)
UNUSED = print("never")


@triton.jit
def scaled(part, of_rows, of_columns):
    return part * of_rows[:, None] * of_columns[None, :]


@triton.jit
def of_others(x):
    return x + UNUSED


@triton.jit
def {name}(
    A, B, C, As, Bs,  # tensors
    M, N, K, group_n, group_k,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    stride_As_m, stride_As_k, stride_Bs_k, stride_Bs_n,
    BLOCK_SIZE_M: tl.constexpr, BLOCK_SIZE_N: tl.constexpr, BLOCK_SIZE_K: tl.constexpr,
    GROUP_SIZE_M: tl.constexpr, {more}
):
    """A tile of C a program."""
    pid = tl.program_id(0)
    tiles_m, tiles_n = tl.cdiv(M, BLOCK_SIZE_M), tl.cdiv(N, BLOCK_SIZE_N)
    first = pid // (GROUP_SIZE_M * tiles_n) * GROUP_SIZE_M
    high = min(tiles_m - first, GROUP_SIZE_M)
    within = pid % (GROUP_SIZE_M * tiles_n)
    rows = (first + within % high) * BLOCK_SIZE_M + tl.arange(0, BLOCK_SIZE_M)
    columns = within // high * BLOCK_SIZE_N + tl.arange(0, BLOCK_SIZE_N)
    inner = tl.arange(0, BLOCK_SIZE_K)
    Bs += columns // group_n * stride_Bs_n
    total = tl.zeros((BLOCK_SIZE_M, BLOCK_SIZE_N), dtype=tl.float32)
    for start in range(0, K, BLOCK_SIZE_K):
        ks = start + inner
        a_mask, b_mask = (rows[:, None] < M) & (ks[None, :] < K), (ks[:, None] < K) & (columns[None, :] < N)
        a = tl.load(A + rows[:, None] * stride_am + ks[None, :] * stride_ak, mask=a_mask, other=ZERO)
        b = tl.load(B + ks[:, None] * stride_bk + columns[None, :] * stride_bn, mask=b_mask, other=ZERO)
        a_s = tl.load(As + rows * stride_As_m + start // group_k * stride_As_k, mask=rows < M, other=ZERO)
        b_s = tl.load(Bs + start // group_k * stride_Bs_k, mask=columns < N, other=ZERO)
        total += scaled(tl.dot(a, b), a_s, b_s)
    c_mask = (rows[:, None] < M) & (columns[None, :] < N)
    tl.store(C + rows[:, None] * stride_cm + columns[None, :] * stride_cn, total.to(C.dtype.element_ty), mask=c_mask)


class Server:
    kernel = {name}
'''


def write_source(path: Path, name: str = VLLM, more: str = "", **replaced: str) -> Path:
    """Such a file. more: further arguments. replaced: texts in place of others, as old="...", new="..."."""
    text = SOURCE.replace("{name}", name).replace("{more}", more)
    if replaced:
        assert replaced["old"] in text
        text = text.replace(replaced["old"], replaced["new"])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path

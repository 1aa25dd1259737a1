"""The source of a fused MoE kernel with the arguments of vLLM 0.33's, written for the tests: as plain as can be."""

VLLM = '''
"""A file that cannot be imported here: only its kernel is taken."""
import a_package_that_is_not_there
from a_package_that_is_not_there import tl, triton

FAR = tl.constexpr(0.0)


@triton.jit
def write_zeros(c_ptr, offsets, mask, BLOCK_SIZE_M: tl.constexpr, BLOCK_SIZE_N: tl.constexpr, of_type: tl.constexpr):
    tl.store(c_ptr + offsets, tl.zeros((BLOCK_SIZE_M, BLOCK_SIZE_N), of_type), mask=mask)


@triton.jit
def fused_moe_kernel(
    a_ptr, b_ptr, c_ptr, b_bias_ptr, a_scale_ptr, b_scale_ptr, topk_weights_ptr, sorted_token_ids_ptr, expert_ids_ptr,
    num_tokens_post_padded_ptr, N, K, EM, num_valid_tokens, stride_am, stride_ak, stride_be, stride_bk, stride_bn,
    stride_cm, stride_cn, stride_asm, stride_ask, stride_bse, stride_bsk, stride_bsn, stride_bbe, stride_bbn,
    group_n: tl.constexpr, group_k: tl.constexpr, naive_block_assignment: tl.constexpr, BLOCK_SIZE_M: tl.constexpr,
    BLOCK_SIZE_N: tl.constexpr, BLOCK_SIZE_K: tl.constexpr, GROUP_SIZE_M: tl.constexpr, SPLIT_K: tl.constexpr,
    MUL_ROUTED_WEIGHT: tl.constexpr, top_k: tl.constexpr, compute_type: tl.constexpr, use_fp8_w8a8: tl.constexpr,
    use_int8_w8a8: tl.constexpr, use_int8_w8a16: tl.constexpr, per_channel_quant: tl.constexpr,
    HAS_BIAS: tl.constexpr, SWAP_AB: tl.constexpr, USE_TD: tl.constexpr = False,
):
    pid = tl.program_id(0)
    blocks_n = tl.cdiv(N, BLOCK_SIZE_N)
    first = pid // (GROUP_SIZE_M * blocks_n) * GROUP_SIZE_M
    members = min(tl.cdiv(EM, BLOCK_SIZE_M) - first, GROUP_SIZE_M)
    within = pid % (GROUP_SIZE_M * blocks_n)
    block_m, block_n = first + within % members, within // members
    if block_m * BLOCK_SIZE_M >= tl.load(num_tokens_post_padded_ptr):
        return
    places = tl.arange(0, BLOCK_SIZE_M)
    if naive_block_assignment:
        rows = tl.where(places == 0, block_m, num_valid_tokens).to(tl.int64)
    else:
        rows = tl.load(sorted_token_ids_ptr + block_m * BLOCK_SIZE_M + places).to(tl.int64)
    real = rows < num_valid_tokens
    columns = block_n * BLOCK_SIZE_N + tl.arange(0, BLOCK_SIZE_N)
    inside = real[:, None] & (columns < N)[None, :]
    out = rows[:, None] * stride_cm + columns[None, :] * stride_cn
    expert = tl.load(expert_ids_ptr + block_m).to(tl.int64)
    if expert == -1:
        write_zeros(c_ptr, out, inside, BLOCK_SIZE_M, BLOCK_SIZE_N, compute_type)
        return
    wrapped = columns % N
    total = tl.zeros((BLOCK_SIZE_M, BLOCK_SIZE_N), tl.float32)
    for step in range(0, tl.cdiv(K, BLOCK_SIZE_K)):
        depth = step * BLOCK_SIZE_K + tl.arange(0, BLOCK_SIZE_K)
        a_at = a_ptr + (rows // top_k)[:, None] * stride_am + depth[None, :] * stride_ak
        a = tl.load(a_at, mask=real[:, None] & (depth < K)[None, :], other=FAR)
        b_at = b_ptr + expert * stride_be + depth[:, None] * stride_bk + wrapped[None, :] * stride_bn
        b = tl.load(b_at, mask=(depth < K)[:, None], other=0.0)
        if use_int8_w8a16:
            total += tl.dot(a, b.to(compute_type))
        elif use_fp8_w8a8 and group_k > 0:
            group = step * BLOCK_SIZE_K // group_k
            of_a = tl.load(a_scale_ptr + rows // top_k * stride_asm + group * stride_ask, mask=real, other=0.0)
            of_b = tl.load(b_scale_ptr + expert * stride_bse + wrapped // group_n * stride_bsn + group * stride_bsk)
            total += tl.dot(a, b) * of_a[:, None] * of_b[None, :]
        else:
            total += tl.dot(a, b)
    if use_int8_w8a16 or per_channel_quant:
        total *= tl.load(b_scale_ptr + expert * stride_bse + wrapped * stride_bsn)[None, :]
    if per_channel_quant:
        total *= tl.load(a_scale_ptr + rows // top_k * stride_asm, mask=real, other=0.0)[:, None]
    if use_fp8_w8a8 and not per_channel_quant and group_k == 0:
        total *= tl.load(a_scale_ptr) * tl.load(b_scale_ptr + expert)
    if HAS_BIAS:
        total += tl.load(b_bias_ptr + expert * stride_bbe + wrapped * stride_bbn)[None, :]
    if MUL_ROUTED_WEIGHT:
        total *= tl.load(topk_weights_ptr + rows, mask=real, other=0.0)[:, None]
    tl.store(c_ptr + out, total.to(compute_type), mask=inside)


def launch_it():
    return a_package_that_is_not_there.launch(fused_moe_kernel)
'''


GROUPED = """

@triton.jit
def fused_moe_kernel_gptq_awq(
    a_ptr, b_ptr, c_ptr, b_scale_ptr, b_zp_ptr, topk_weights_ptr, sorted_token_ids_ptr, expert_ids_ptr,
    num_tokens_post_padded_ptr, N: tl.constexpr, K: tl.constexpr, EM, num_valid_tokens, stride_am, stride_ak, stride_be,
    stride_bk, stride_bn, stride_cm, stride_cn, stride_bse, stride_bsk, stride_bsn, stride_bze, stride_bzk, stride_bzn,
    block_k_diviable: tl.constexpr, group_size: tl.constexpr, BLOCK_SIZE_M: tl.constexpr, BLOCK_SIZE_N: tl.constexpr,
    BLOCK_SIZE_K: tl.constexpr, GROUP_SIZE_M: tl.constexpr, SPLIT_K: tl.constexpr, MUL_ROUTED_WEIGHT: tl.constexpr,
    top_k: tl.constexpr, compute_type: tl.constexpr, has_zp: tl.constexpr, use_int4_w4a16: tl.constexpr,
    use_int8_w8a16: tl.constexpr,
):
    pid = tl.program_id(0)
    blocks_n = tl.cdiv(N, BLOCK_SIZE_N)
    block_m, block_n = pid // blocks_n, pid % blocks_n
    if block_m * BLOCK_SIZE_M >= tl.load(num_tokens_post_padded_ptr):
        return
    rows = tl.load(sorted_token_ids_ptr + block_m * BLOCK_SIZE_M + tl.arange(0, BLOCK_SIZE_M)).to(tl.int64)
    real = rows < num_valid_tokens
    columns = block_n * BLOCK_SIZE_N + tl.arange(0, BLOCK_SIZE_N)
    wrapped = (columns % N)[None, :]
    inside = real[:, None] & (columns < N)[None, :]
    out = rows[:, None] * stride_cm + columns[None, :] * stride_cn
    expert = tl.load(expert_ids_ptr + block_m).to(tl.int64)
    if expert == -1:
        write_zeros(c_ptr, out, inside, BLOCK_SIZE_M, BLOCK_SIZE_N, compute_type)
        return
    total = tl.zeros((BLOCK_SIZE_M, BLOCK_SIZE_N), tl.float32)
    for step in range(0, tl.cdiv(K, BLOCK_SIZE_K)):
        depth = step * BLOCK_SIZE_K + tl.arange(0, BLOCK_SIZE_K)
        a_at = a_ptr + (rows // top_k)[:, None] * stride_am + depth[None, :] * stride_ak
        a = tl.load(a_at, mask=real[:, None] & (depth < K)[None, :], other=0.0)
        at, group = depth[:, None], (depth // group_size)[:, None]
        b_at = b_ptr + expert * stride_be + wrapped * stride_bn
        if use_int4_w4a16:
            b = (tl.load(b_at + at // 2 * stride_bk) >> (at % 2 * 4)) & 15
            zero = 8.0
        else:
            b = tl.load(b_at + at * stride_bk)
            zero = 128.0
        if has_zp:
            zero_at = b_zp_ptr + expert * stride_bze + group * stride_bzk
            if use_int4_w4a16:
                zero = ((tl.load(zero_at + wrapped // 2 * stride_bzn) >> (wrapped % 2 * 4)) & 15).to(tl.float32)
            else:
                zero = tl.load(zero_at + wrapped * stride_bzn).to(tl.float32)
        scale = tl.load(b_scale_ptr + expert * stride_bse + wrapped * stride_bsn + group * stride_bsk)
        total += tl.dot(a, ((b.to(tl.float32) - zero) * scale.to(tl.float32)).to(compute_type))
    if MUL_ROUTED_WEIGHT:
        total *= tl.load(topk_weights_ptr + rows, mask=real, other=0.0)[:, None]
    tl.store(c_ptr + out, total.to(compute_type), mask=inside)
"""


BY_TMA = {
    "rows": """\
        if a_desc is not None:
            a_rows = block_m * BLOCK_SIZE_M + places
        else:
            a_rows = rows // top_k
""",
    "a": """\
        if a_desc is not None:
            a = a_desc.load([block_m * BLOCK_SIZE_M, step * BLOCK_SIZE_K])
        else:
""",
    "b": """\
        if b_desc is not None:
            b = b_desc.load([expert.to(tl.int32), block_n * BLOCK_SIZE_N, step * BLOCK_SIZE_K])
            b = b.reshape(BLOCK_SIZE_N, BLOCK_SIZE_K).T
        else:
""",
    "out": """\
    if c_sorted:
        c_rows = (block_m * BLOCK_SIZE_M + places).to(tl.int64)
    else:
        c_rows = rows
""",
}


ZEROS = "        write_zeros(c_ptr, out, inside, BLOCK_SIZE_M, BLOCK_SIZE_N, compute_type)\n        return\n"


def sglang() -> str:
    """The same kernel with the arguments of SGLang 0.5.23's."""
    start, end = VLLM.index("    a_ptr, b_ptr, c_ptr, b_bias"), VLLM.index("):\n    pid = tl.program_id(0)")
    arguments = """    a_ptr, a_desc, b_ptr, b_desc, bias_ptr, c_ptr, a_scale_ptr, b_scale_ptr, topk_weights_ptr,
    sorted_token_ids_ptr, expert_ids_ptr, num_tokens_post_padded_ptr, add_mask_ptr, N, K, EM, num_valid_tokens,
    stride_am, stride_ak, stride_be, stride_bk, stride_bn, stride_bias_e, stride_bias_n, stride_cm, stride_cn,
    stride_asm, stride_ask, stride_bse, stride_bsk, stride_bsn, group_n: tl.constexpr, group_k: tl.constexpr,
    BLOCK_SIZE_M: tl.constexpr, BLOCK_SIZE_N: tl.constexpr, BLOCK_SIZE_K: tl.constexpr, GROUP_SIZE_M: tl.constexpr,
    MUL_ROUTED_WEIGHT: tl.constexpr, top_k: tl.constexpr, compute_type: tl.constexpr, use_fp8_w8a8: tl.constexpr,
    use_int8_w8a8: tl.constexpr, use_int8_w8a16: tl.constexpr, per_channel_quant: tl.constexpr,
    even_Ks: tl.constexpr, c_sorted: tl.constexpr, swap_ab: tl.constexpr, FUSE_ADD_TO_OUTPUT: tl.constexpr,
    MASK_OUTPUT: tl.constexpr, FUSE_SUM_ALL_REDUCE: tl.constexpr, ROUTER_TOPK: tl.constexpr,
    FUSE_SWIGLU: tl.constexpr = False, USE_GDC: tl.constexpr = False, GDC_EARLY: tl.constexpr = False,
"""
    text = VLLM[:start] + arguments + VLLM[end:]
    naive, sorts = text.index("    if naive_block_assignment:"), text.index("        rows = tl.load(sorted")
    text = text[:naive] + text[sorts + 4 :]
    for old, new in (
        (ZEROS, "        if not c_sorted:\n    " + ZEROS),
        ("if HAS_BIAS:", "if bias_ptr is not None:"),
        ("b_bias_ptr + expert * stride_bbe + wrapped * stride_bbn", "bias_ptr + expert * stride_bias_e + wrapped"),
        ("        a_at = a_ptr", BY_TMA["rows"] + "        a_at = a_ptr"),
        ("        a = tl.load(a_at,", BY_TMA["a"] + "            a = tl.load(a_at,"),
        ("        b = tl.load(b_at, mask", BY_TMA["b"] + "            b = tl.load(b_at, mask"),
        ("a_scale_ptr + rows // top_k * stride_asm + group", "a_scale_ptr + a_rows * stride_asm + group"),
        ("    out = rows[:, None]", BY_TMA["out"] + "    out = c_rows[:, None]"),
    ):
        assert old in text
        text = text.replace(old, new)
    of_vllm = "block_k_diviable: tl.constexpr, "
    assert of_vllm in GROUPED
    grouped = GROUPED.replace(of_vllm, "").replace("SPLIT_K: tl.constexpr, ", "")
    return text + grouped.replace(
        "use_int8_w8a16: tl.constexpr,\n)", "use_int8_w8a16: tl.constexpr, even_Ks: tl.constexpr,\n)"
    )

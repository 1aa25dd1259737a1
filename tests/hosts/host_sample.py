"""A user's file for tests: kernels, host functions of many kinds, and what else such files do."""

import torch
import triton
import triton.language as tl


@triton.jit
def doubled(out, x, n, BLOCK: tl.constexpr, FACTOR: tl.constexpr = 2):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) * FACTOR, mask=at < n)


@triton.jit
def shifted(x, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at, mask=at < n) + 1, mask=at < n)


def three_launches(n, dtype="float32", SHIFT_BLOCK=16):
    """``doubled`` once, ``shifted`` twice: out = 2 * x + 2. A launch of no programs is none."""
    x = torch.randn(n, device="cuda", dtype=getattr(torch, dtype))
    assert x.is_cuda and x.device.type == "cuda"
    out = torch.empty_like(x)
    doubled[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](out, x, n, BLOCK=8)
    for _ in range(2):
        shifted[(triton.cdiv(n, SHIFT_BLOCK),)](out, n, SHIFT_BLOCK)
    shifted[(0,)](out, n, SHIFT_BLOCK)
    return out


def reference(x, dtype):
    return 2 * x.to(dtype) + 2


def wide_enough(configs, args, **_):
    return [config for config in configs if config.kwargs["BLOCK"] <= args["n"]]


def note_block(args):
    args["x"].hooked = args["BLOCK"]


@triton.autotune(
    configs=[triton.Config({"BLOCK": block}, num_warps=1, pre_hook=note_block) for block in (16, 32, 4096)],
    key=["n"],
    prune_configs_by={"early_config_prune": wide_enough},
)
@triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})
@triton.jit
def tuned_copy(out, x, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if EVEN:
        tl.store(out + at, tl.load(x + at))
    else:
        tl.store(out + at, tl.load(x + at, mask=at < n), mask=at < n)


def copy(n):
    x = torch.randn(n, device="cuda")
    out = torch.empty_like(x)
    tuned_copy[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](out, x, n)
    return out


@triton.autotune(
    configs=[triton.Config({"BLOCK": 16}, num_warps=1)], key=["n"], reset_to_zero=["out"], restore_value=["x"]
)
@triton.jit
def added(out, x, n, BLOCK: tl.constexpr):
    """out += x, x += 1"""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + at, mask=at < n)
    tl.store(out + at, tl.load(out + at, mask=at < n) + values, mask=at < n)
    tl.store(x + at, values + 1, mask=at < n)


def add(n):
    x, out = torch.randn(n, device="cuda"), torch.zeros(n, device="cuda")
    added[(triton.cdiv(n, 16),)](out, x, n)
    return out


def by_address(n):
    x, out = torch.randn(n, device="cuda"), torch.zeros(n, device="cuda")
    addresses = torch.tensor([x.data_ptr(), out.data_ptr()], device="cuda")
    shifted[(1,)](addresses, 2, BLOCK=2)


def persistent(n):
    """As tutorials do: as many programs as there are multiprocessors."""
    sms = torch.cuda.get_device_properties("cuda").multi_processor_count
    utils = triton.runtime.driver.active.utils.get_device_properties(torch.cuda.current_device())
    assert utils["multiprocessor_count"] == sms
    x = torch.randn(n, device=triton.runtime.driver.active.get_active_torch_device())
    doubled[(sms,)](torch.empty_like(x), x[1:], n - 1, BLOCK=utils["max_shared_mem"] // 1024)


def reads_registers(n):
    x = torch.zeros(n, device="cuda")
    compiled = doubled.warmup(x, x, n, BLOCK=16, grid=(1,))
    doubled[(compiled.n_regs,)](x, x, n, BLOCK=16)


def reads_values(n):
    x = torch.zeros(n, device="cuda")
    doubled[(int(x.sum()),)](x, x, n, BLOCK=16)


def launches_nothing(n):
    return torch.zeros(n, device="cuda")


def launches_another(n):
    x = torch.zeros(n, device="cuda")
    shifted[(1,)](x, n, 16)


def raises(n):
    raise RuntimeError("no such\ncase")


not_a_kernel = reference
print("a benchmark runs here")
raise SystemExit("which the tuner does not")

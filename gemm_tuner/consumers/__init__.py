"""Consumers of tuned configurations (vLLM, SGLang, AITER, ...): what their kernels can launch, their defaults, and the
names and formats of their files.

May import core, system, gemm, space, kernels, moe.
"""

from __future__ import annotations

from gemm_tuner.consumers.aiter import Aiter
from gemm_tuner.consumers.block_fp8 import Sglang, Vllm
from gemm_tuner.consumers.consumer import Consumer, Served
from gemm_tuner.consumers.moe import AiterMoe, SglangMoe, VllmMoe
from gemm_tuner.consumers.plain import Csv, Json, TritonConfig
from gemm_tuner.consumers.vllm_kernels import VllmSsu

SERVERS = ("vllm", "sglang", "aiter", "triton")  # those for --serve
_WITH_LOOK_UP = (Vllm(), Sglang(), Aiter(), VllmMoe(), SglangMoe())
CONSUMERS: dict[str, Consumer] = {
    one.name: one for one in (*_WITH_LOOK_UP, AiterMoe(), TritonConfig(), Csv(), Json())
}  # fmt: skip
SERVED: dict[str, Served] = {one.name: one for one in (*_WITH_LOOK_UP, VllmSsu())}

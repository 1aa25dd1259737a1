"""Tuned configs in the files that others read: one module a consumer, one registry."""

from __future__ import annotations

from gemm_tuner.consumers.aiter import Aiter
from gemm_tuner.consumers.block_fp8 import Sglang, Vllm
from gemm_tuner.consumers.consumer import Consumer, Served
from gemm_tuner.consumers.plain import Csv, Json, TritonConfig

_WITH_LOOK_UP = (Vllm(), Sglang(), Aiter())
CONSUMERS: dict[str, Consumer] = {one.name: one for one in (*_WITH_LOOK_UP, TritonConfig(), Csv(), Json())}
SERVED: dict[str, Served] = {one.name: one for one in _WITH_LOOK_UP}

"""Stand-ins for tensors and streams of a compile."""

from __future__ import annotations

from typing import Any


def make_fake_compact_tensor(dtype: str, shape: Any, *, stride_order: tuple[int, ...], assumed_align: int) -> Any:
    return dtype, shape, stride_order, assumed_align


def make_fake_stream(*, use_tvm_ffi_env_stream: bool) -> Any:
    return use_tvm_ffi_env_stream

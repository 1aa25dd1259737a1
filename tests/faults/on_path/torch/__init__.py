"""Takes torch's place where the tuner asks what GPUs there are: says that there is one H200, and computes nothing."""

from __future__ import annotations

from types import SimpleNamespace

H200 = SimpleNamespace(
    name="NVIDIA H200",
    major=9,
    minor=0,
    multi_processor_count=132,
    total_memory=150754820096,
    L2_cache_size=62914560,
    shared_memory_per_block_optin=232448,
)
version = SimpleNamespace(hip=None)
cuda = SimpleNamespace(is_available=lambda: True, device_count=lambda: 1, get_device_properties=lambda index: H200)

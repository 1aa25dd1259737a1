"""Symbols of the kernels that belong to the measurement itself, as a profiler's trace shows them."""

from __future__ import annotations

# Launched before and after each vendor call, whose kernels have unknown names.
BEGIN_SYMBOL = "gemm_tuner_vendor_begin"
END_SYMBOL = "gemm_tuner_vendor_end"
# Launched before every timed call, to evict its operands from the L2 cache.
FLUSH_SYMBOL = "gemm_tuner_flush_l2"

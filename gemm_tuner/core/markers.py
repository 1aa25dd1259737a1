"""Names of the kernels that belong to the measurement itself, as a trace shows them."""

from __future__ import annotations

# Before and after a vendor call.
BEGIN_SYMBOL = "gemm_tuner_vendor_begin"
END_SYMBOL = "gemm_tuner_vendor_end"
# Before every timed call.
FLUSH_SYMBOL = "gemm_tuner_flush_l2"

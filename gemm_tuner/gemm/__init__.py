"""GEMM: problems, configurations, size files, operands, reference, vendor call, performance model."""

"""Fused mixture of experts: problems of two grouped GEMMs, routing, the servers' kernels, operands, reference.

May import core, system, languages, gemm, space, kernels.
"""

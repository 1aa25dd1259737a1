"""Host functions of users' kernels: what they launch for each case and configuration, captured without a GPU.

May import core, system, languages, gemm, space, kernels.
"""

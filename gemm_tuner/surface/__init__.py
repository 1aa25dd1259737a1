"""The Python surface, ``import gemm_tuner as gt``: tunes live functions in the caller's own process.

Imports all packages but cli. torch and triton are imported when a function needs them.
"""

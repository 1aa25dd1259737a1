"""The Python API, ``import gemm_tuner as gt``: tunes functions in the caller's process.

Imports all packages except cli. torch and triton are imported on demand.
"""

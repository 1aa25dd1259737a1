"""A user's kernels and programs: spec files, their expressions, and how each case is computed.

May import core, system, languages, gemm, space.
"""

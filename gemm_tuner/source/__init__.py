"""Jinja templates become the scripts that hold the kernels.

May import core, system, languages, gemm, space, consumers.
"""

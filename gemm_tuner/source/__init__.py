"""Renders Jinja templates to the scripts that contain the kernels.

May import core, system, languages, gemm, space, consumers.
"""

"""Compiles many kernels at once, without a GPU: the pool, the tasks, and what came of them.

May import core, system, languages, gemm, space, consumers, source, search.
"""

"""Compiles many kernels at once, without a GPU: the pool of processes, the service that feeds it from a thread, the
tasks and what their results mean. Knows no store and no run: results go to a callback.

May import core, system, languages, gemm, space, consumers, source, search.
"""

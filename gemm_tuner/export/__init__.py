"""Exports tuned configurations: files of servers, a Python module, and the smallest set that serves all sizes.

May import core, system, languages, gemm, space, kernels, cute, hosts, consumers, source, compile, store, pipeline.
"""

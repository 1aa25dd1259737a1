"""Tuned configs for others: files of servers, a Python module, the fewest configs that serve all sizes.

May import core, system, languages, gemm, space, consumers, source, search, compile, launch, profilers, measure,
decide, store, pipeline.
"""

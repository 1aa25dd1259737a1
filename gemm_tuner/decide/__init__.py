"""Ranks finalists, finds ties, and computes the time to publish. Pure functions.

May import core, system, languages, gemm, space, consumers, source, search, compile, launch, profilers, measure.
"""

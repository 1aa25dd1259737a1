"""Which finalist is the fastest, what noise cannot tell from it, and what is published. Pure functions.

May import core, system, languages, gemm, space, consumers, source, search, compile, launch, profilers, measure.
"""

"""The order of things: tune, predict, check; search rounds and finals. The only package that knows all stages.

May import core, system, languages, gemm, space, consumers, source, search, compile, launch, profilers, measure,
decide, store.
"""

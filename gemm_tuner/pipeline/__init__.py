"""The order of the stages: tune, predict, check; search rounds and finals. The only package that knows them all.

May import core, system, languages, gemm, space, consumers, source, search, compile, launch, profilers, measure,
decide, store.
"""

"""Runs the stages in order: search rounds, finals, checks. The only package that imports all stages.

May import core, system, languages, space, kernels, consumers, source, search, compile, launch, profilers, measure,
decide, store, executors.
"""

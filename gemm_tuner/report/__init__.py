"""What people look at: a run as a page, in the terminal or as JSON, and two runs side by side.

May import core, system, languages, gemm, space, consumers, source, search, compile, launch, profilers, measure,
decide, store, pipeline, export.
"""

"""Reports: a run as an HTML page, in the terminal or as JSON, and the comparison of two results.

May import core, system, languages, kernels, moe, consumers, source, launch, measure, decide, store, pipeline.
"""

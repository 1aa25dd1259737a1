"""Compiles kernels in parallel without a GPU: the tasks, the process pool, and a background service.

Independent of runs and of the store: results are passed to a callback.

May import core, system, languages, space, consumers, source.
"""

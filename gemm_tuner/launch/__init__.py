"""Runs in the profiled process: launches, journals, checks. Imports torch only when it runs.

May import core, system, languages, gemm, space, consumers, source, search, compile.
"""

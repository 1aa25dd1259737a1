"""GEMM: problems, configurations, their keys in files, operands, reference, vendor call, performance model.

May import core, system, languages.
"""

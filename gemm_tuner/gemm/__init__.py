"""Everything about M, N and K: the problem, its types, size files, operands, reference, vendor call, cost model.

May import core, system, languages.
"""

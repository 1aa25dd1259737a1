"""All that knows M, N and K: the problem, its types, size files, operands, reference, vendor call and cost model.

May import core, system, languages.
"""

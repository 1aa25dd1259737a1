"""The kind of problem "cute": users' kernels in CuTe DSL.

May import core, kernels.
"""

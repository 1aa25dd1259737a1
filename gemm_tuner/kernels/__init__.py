"""Users' kernels and programs: spec files, their expressions, and the workload of user kernels.

May import core, system, languages, space.
"""

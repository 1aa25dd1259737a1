"""Kernel languages: one package each, with all that knows how it compiles, names, loads and launches kernels.

May import core, system.
"""

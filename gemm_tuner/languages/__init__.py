"""Kernel languages: one package each, which compiles, names, loads and launches kernels.

May import core, system.
"""

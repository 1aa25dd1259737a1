"""Kernel languages: one package per language, which compiles, names, loads and launches its kernels.

May import core, system.
"""

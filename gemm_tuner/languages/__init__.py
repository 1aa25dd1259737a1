"""Kernel languages: one package each, which compiles, names, loads and launches kernels."""

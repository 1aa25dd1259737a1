"""What reads tuned configs: the limits of its kernels, its default configuration, its files' names and keys.

May import core, system, languages, gemm, space.
"""

"""Triton: compilation without a GPU, the disk cache, binaries, and environment variables that affect kernels."""

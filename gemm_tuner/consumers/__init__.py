"""Readers of tuned configs: the limits of their kernels, default configurations, names and keys of their files."""

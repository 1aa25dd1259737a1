"""Exports that take GEMMs only: one Python module, and the smallest set of configurations that serves all sizes."""

"""Renders Jinja templates to Python scripts that contain the kernels.

May import core, system, consumers.
"""

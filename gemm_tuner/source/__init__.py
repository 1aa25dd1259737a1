"""Renders Jinja templates to the scripts that contain the kernels."""

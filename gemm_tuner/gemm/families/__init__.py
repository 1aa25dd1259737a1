"""Properties of each kernel family that Python code depends on: one module per family, named like its template."""

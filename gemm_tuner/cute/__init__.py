"""The kind of problem "cute": a user's kernels in CuTe DSL."""

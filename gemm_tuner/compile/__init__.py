"""Compiles many kernels at once, without a GPU: the process pool, the service in front of it, the tasks.

Knows no store and no run: results go to a callback."""

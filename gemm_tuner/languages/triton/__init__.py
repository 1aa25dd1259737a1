"""Triton: compilation without a GPU, its disk cache, binaries and environment variables, its profiler in a process, and
the classes by which it launches."""

"""Triton: its compiler with a stand-in driver, its cache on disk, its binaries, and the environment that counts."""

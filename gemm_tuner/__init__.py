"""A batch GEMM tuner: sizes in, tuned and checked kernel configurations out."""

__version__ = "0.1.0"

"""Sums of the rows of a matrix in C, on the CPU: a kind of problem in another language than Triton."""

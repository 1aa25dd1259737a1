"""Softmax of the rows of a matrix, as a kind of problem from outside the package: an example and a test."""

"""Compares two results: which sizes became significantly faster or slower."""

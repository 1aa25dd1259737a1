"""Ranks finalists, finds ties, and computes published times. Pure functions."""

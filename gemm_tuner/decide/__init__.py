"""Ranks finalists, finds ties, and computes the time to publish. Pure functions."""

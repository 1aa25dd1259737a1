"""Ranks finalists, finds ties, and computes published times. Pure functions.

May import core, launch, measure.
"""

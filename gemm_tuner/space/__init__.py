"""Axes of an architecture, the configurations that they span, the rules that cut them, and where each one ended."""

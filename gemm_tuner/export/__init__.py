"""Exports tuned configurations: files of servers, a Python module, and the smallest set that serves all sizes."""

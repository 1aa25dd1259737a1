"""Runs in the profiled process: launches, journals, checks. Imports torch only when it runs."""

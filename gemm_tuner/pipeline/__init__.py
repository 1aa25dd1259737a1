"""Runs the stages in order: search rounds, finals, checks. The only package that imports all stages."""

"""Executors perform the work of a run: this machine's processes, behind a protocol that a cluster can implement.

May import core, system, languages, compile, launch, profilers, measure, store.
"""

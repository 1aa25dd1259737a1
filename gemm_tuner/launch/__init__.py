"""The code that runs in launcher processes, under the profiler: launches, journal, checks. torch is imported on
demand.

May import core, system, languages.
"""

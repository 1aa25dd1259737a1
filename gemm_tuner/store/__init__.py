"""Files on disk: the run's folder and database, size files and results files, and which rows may be exported.

May import core, system, languages, kernels, consumers, launch.
"""

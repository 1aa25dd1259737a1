"""Files on disk: the run's folder and database, results files, and which rows may be exported.

May import core, system, languages, gemm, space, consumers, source, search, compile, launch, profilers, measure,
decide.
"""

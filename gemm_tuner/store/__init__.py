"""What is kept on disk: the run's folder and database, results files, and who may take rows from them.

May import core, system, languages, gemm, space, consumers, source, search, compile, launch, profilers, measure,
decide.
"""

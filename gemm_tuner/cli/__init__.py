"""The command line: flags, subcommands, exit statuses.

May import core, system, languages, gemm, space, consumers, source, search, compile, launch, profilers, measure,
decide, store, pipeline, export, report.
"""

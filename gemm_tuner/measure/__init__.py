"""Runs and supervises launcher processes on the GPUs, joins their journals with traces, reads GPU facts.

May import core, system, languages, gemm, space, consumers, source, search, compile, launch, profilers.
"""

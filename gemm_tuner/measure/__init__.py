"""What stands beside the GPU: launcher processes and their supervision, the join of trace and journal, GPU facts.

May import core, system, languages, gemm, space, consumers, source, search, compile, launch, profilers.
"""

"""Runs and supervises launcher processes on the GPUs, joins their journals with traces, and reads facts of GPUs.

May import core, system, space, launch, profilers.
"""

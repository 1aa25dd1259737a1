"""What asks the operating system: processes, memory, locks, signals, files written whole or not at all, progress.

May import core.
"""

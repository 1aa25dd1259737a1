"""What the tuner needs of the operating system: processes, memory, locks, signals, files, documents, progress.

May import core.
"""

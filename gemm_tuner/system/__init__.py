"""The operating system: processes, memory, locks, signals, atomic files, documents, progress."""

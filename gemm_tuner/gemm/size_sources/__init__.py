"""Collects sizes from files of other tools. Each module reads one kind of file, from text to ``found.Read``."""

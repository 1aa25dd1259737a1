"""Size lists out of what other tools leave behind: one module a source, each from text to ``found.Read``."""

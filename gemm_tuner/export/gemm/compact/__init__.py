"""The smallest set of configurations that serves all sizes of a run within a given loss of performance."""

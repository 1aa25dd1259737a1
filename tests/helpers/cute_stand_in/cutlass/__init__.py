"""Stands in for NVIDIA's CuTe DSL: as much of its surface as the tuner uses, over ptxas and the C compiler."""

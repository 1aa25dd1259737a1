"""Stands in for NVIDIA's CuTe DSL: as much of its surface as the tuner uses, over ptxas and the C compiler."""

BFloat16, Float32 = "bf16", "f32"

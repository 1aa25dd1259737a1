"""Host functions that launch users' kernels: their launches are captured, without a GPU, for each case and
configuration.

May import core, system, languages, space, kernels.
"""

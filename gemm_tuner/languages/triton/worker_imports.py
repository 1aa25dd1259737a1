"""Imports what a compile worker needs of Triton; for the process that workers are forked from, and for no other.

Importing Triton takes 0.5 s, and what the first kernel of a process imports as long again; both define their kernels by
what the environment says then. What goes wrong here goes wrong again in the worker, which reports it.
"""

from __future__ import annotations

import contextlib
import os

from gemm_tuner.languages.triton.kernel_env import FOREIGN_VARIABLES

for _name in FOREIGN_VARIABLES:
    os.environ.pop(_name, None)
with contextlib.suppress(Exception):
    from gemm_tuner.languages.triton import compile_call

    compile_call.keep_torch_out()
    import triton.backends.compiler

    from gemm_tuner.languages.triton import binary  # noqa: F401
with contextlib.suppress(Exception):
    import triton.experimental.gluon.nvidia.hopper  # noqa: F401

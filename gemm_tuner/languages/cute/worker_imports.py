"""Imports what a compile worker needs of CuTe DSL; for the process that workers are forked from, and for no other.

The DSL, torch and the library of kernels take 2 s of a core to import, and a first kernel of the library a second more
than others. What goes wrong here goes wrong again in the worker, which reports it.
"""

from __future__ import annotations

import contextlib
import gc
import os

from gemm_tuner.languages.cute import compiler
from gemm_tuner.languages.cute.language import ARCH_VARIABLE, LANGUAGE, PLACE_VARIABLE

for _name in LANGUAGE.removed_variables:
    os.environ.pop(_name, None)
with contextlib.suppress(Exception):
    if compiler.place() == os.environ[PLACE_VARIABLE]:
        compiler.prepare(os.environ[ARCH_VARIABLE])
        from gemm_tuner.languages.cute.warm_up import warm_up

        warm_up(os.environ[ARCH_VARIABLE])
# Workers do not look through what is here for cycles, again and again.
gc.collect()
gc.freeze()

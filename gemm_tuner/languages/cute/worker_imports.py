"""Imports what a compile worker needs of CuTe DSL; for the process that workers are forked from, and for no other.

The DSL, torch and the library of kernels take 4 s of a core to import. What goes wrong here goes wrong again in the
worker, which reports it.
"""

from __future__ import annotations

import contextlib
import os

from gemm_tuner.languages.cute import compiler
from gemm_tuner.languages.cute.language import ARCH_VARIABLE, LANGUAGE, PLACE_VARIABLE

for _name in LANGUAGE.removed_variables:
    os.environ.pop(_name, None)
with contextlib.suppress(Exception):
    if compiler.place() == os.environ[PLACE_VARIABLE]:
        compiler.prepare(os.environ[ARCH_VARIABLE])

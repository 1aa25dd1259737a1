"""The first thing that a command does: it starts what takes seconds before it imports what takes tenths of one."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from gemm_tuner.languages.triton.kernel_env import FOREIGN_VARIABLES
from gemm_tuner.measure.torch_ahead import TorchAhead

# OpenBLAS, NumPy's library, starts a thread for each core when it is imported, each of which spins for 0.13 s (two
# cores): on 32 cores the import of NumPy and pandas takes 4.8 s of processor time, in every process of a run. The tuner
# multiplies no large matrices with it.
BLAS_THREADS, ONE = "OPENBLAS_NUM_THREADS", "1"
# A thread that has the interpreter lets others have it after so long, not after 5 ms: what a pool of threads fits
# beside one that books compiled kernels then takes 0.46 s in place of 0.74 (two cores).
SWITCH_S = 0.0005
# Where the driver of an NVIDIA GPU is loaded. Not of AMD's: it is not tested there that nothing is read of the
# environment before the process has that of a launcher.
GPU_NODES = (Path("/dev/nvidiactl"), Path("/dev/dxg"))
# Beginnings of flags with which nothing is timed on a GPU of this machine.
NOT_HERE = (
    *("-h", "--version", "--dry", "--explain", "--compile_only", "--arch", "--replay", "--cluster", "--benchmark"),
    *("--help", "--compare_wo_tuning"),
)


def is_tuning(words: Sequence[str]) -> bool:
    """Whether the command line is of the main command, which runs the tuner's kernels and no others."""
    return bool(words) and words[0].startswith("-")


def times_here(words: Sequence[str], nodes: Sequence[Path] = GPU_NODES) -> bool:
    """Whether the command line looks like one that screens kernels on a GPU of this machine. The wrong answer costs
    time: of a process that is not used, or of the import that is waited for."""
    may_time = is_tuning(words) and not any(word.startswith(NOT_HERE) for word in words)
    return may_time and any(node.exists() for node in nodes)


def ready() -> Callable[[], int]:
    """Starts the process that imports torch, if this process's command line asks for it, and returns the main function.
    Before that it limits the threads of NumPy, unless the environment does, in this process and those that it starts;
    not of a command that may run a user's own programs. Raises what importing the main function raises."""
    if is_tuning(sys.argv[1:]):
        os.environ.setdefault(BLAS_THREADS, ONE)
    sys.setswitchinterval(SWITCH_S)
    ahead = TorchAhead.begin(FOREIGN_VARIABLES) if times_here(sys.argv[1:]) else TorchAhead()
    try:
        from gemm_tuner.cli.main import main
    except BaseException:
        ahead.end()
        raise
    return partial(ended_with, main, ahead)


def ended_with(main: Callable[..., int], ahead: TorchAhead) -> int:
    """The exit status of ``main``, with which the process of ``ahead`` ends."""
    try:
        return main(torch_ahead=ahead)
    finally:
        ahead.end()
        if "triton" not in sys.modules:  # whose library would report all that is not freed
            gc.freeze()  # else the interpreter looks through all objects before it ends: 0.15 s


def main() -> int:
    """The installed command."""
    return ready()()

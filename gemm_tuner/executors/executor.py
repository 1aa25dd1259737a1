"""What a run asks of the machines that work for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from gemm_tuner.compile.compile_service import Compiler
from gemm_tuner.measure.launcher import Checker, Launcher


class Executor(Protocol):
    """Where a run's kernels are compiled, timed and checked.

    Each part is handed jobs (compile tasks, plans), tells what becomes of them as it happens, and can be ended from
    another thread. The pipeline alone knows the store and decides what comes next: a part that fails raises
    EnvironmentFault, and its jobs go to another.
    """

    def compiler(self) -> Compiler:
        """Compiles for the run's target; the caller opens and closes it."""

    def launchers(self) -> Sequence[Launcher]:
        """One for each GPU of the run, in their order; none where nothing can be timed. The caller closes them."""

    def checker(self) -> Checker:
        """Checks kernels of the target where there is no launcher."""

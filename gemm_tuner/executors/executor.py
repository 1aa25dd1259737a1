"""The protocol of an executor: the machines that compile, time and check for a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from gemm_tuner.compile.compile_service import Compiler
from gemm_tuner.core.language import CompileTask
from gemm_tuner.measure.launcher import HostChecker, Launcher


class Executor(Protocol):
    """Compiles, times and checks the kernels of a run.

    Each part receives jobs (compile tasks, plans), reports their results as they happen, and can be ended from another
    thread. Only the pipeline uses the store and decides what to do next. A part that fails raises EnvironmentFault, and
    its jobs go to another one.
    """

    def compiler(self) -> Compiler:
        """The compiler for the run's target; the caller opens and closes it."""

    def wants(self, name: str, task: CompileTask) -> None:
        """Hears which configuration runs what a task compiles."""
        return None

    def launchers(self) -> Sequence[Launcher]:
        """One launcher per GPU of the run, in order; none if nothing can be timed. The caller closes them."""

    def checker(self) -> HostChecker:
        """Checks kernels if there is no launcher."""

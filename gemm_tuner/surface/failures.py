"""Converts exceptions of configurations to statuses."""

from __future__ import annotations

from gemm_tuner.core.records import Status
from gemm_tuner.launch.failures import status_of
from gemm_tuner.surface.records import WrongOutput
from gemm_tuner.surface.time_limit import TimeLimit

# Names of Triton's exceptions, so that Triton need not be imported.
COMPILE_ERRORS = ("CompilationError", "PTXASError", "InterpreterError")


def status_by(error: BaseException) -> Status:
    """The status of a configuration whose call raised this."""
    if isinstance(error, TimeLimit):
        return Status.TIMEOUT
    if isinstance(error, WrongOutput):
        return Status.WRONG
    # Triton compiles at the launch.
    did_not_compile = any(kind.__name__ in COMPILE_ERRORS for kind in type(error).__mro__)
    return Status.COMPILE_ERROR if did_not_compile else status_of(error)


def status_of_build(error: BaseException) -> Status:
    """The status of a configuration whose build raised this."""
    if isinstance(error, TimeLimit):
        return Status.COMPILE_TIMEOUT
    status = status_of(error)
    return status if status in (Status.OUT_OF_RESOURCES, Status.CRASHED) else Status.COMPILE_ERROR

"""Faults of Triton's interpreter.

As of 3.9 what compares two scalars has the type of these there, so that its splat holds integers, and
``mask &= row != pad`` is no mask for a load or store. That of 3.6 converts arrays of one element to integers, which
NumPy 2.4 no longer does, so that no kernel with a loop runs (tried with 2.3.5, 2.4.0 and 2.5.5; 3.7 runs with 2.5.5).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from gemm_tuner.core.errors import EnvironmentFault
from gemm_tuner.system.package_version import package_version
from gemm_tuner.system.replaced import replaced


def check_versions(version_of: Callable[[str], str | None] = package_version) -> None:
    """Raises EnvironmentFault for versions of Triton and NumPy with which the interpreter cannot run kernels."""
    triton, numpy = version_of("triton"), version_of("numpy")
    if triton and numpy and minor(triton) < (3, 7) and minor(numpy) >= (2, 4):
        raise EnvironmentFault(
            f"the interpreter of Triton {triton} does not run with NumPy {numpy}",
            accepted="Triton 3.7 and later, or NumPy before 2.4",
            hint="pip install 'numpy<2.4'",
        )


def minor(version: str) -> tuple[int, int]:
    """The first two numbers of a version."""
    major, _, rest = version.partition(".")
    return int(major), int(rest.partition(".")[0])


@contextlib.contextmanager
def mended() -> Iterator[None]:
    """A context in which the splat of a comparison is one of booleans."""
    import numpy as np
    from triton import language
    from triton.runtime import interpreter

    splat = interpreter.InterpreterBuilder.create_splat

    def of_any(builder: Any, to: Any, scalar: Any) -> Any:
        if scalar.data.dtype == np.bool_:
            return interpreter.TensorHandle(np.full(to.shape, scalar.data.flat[0]), language.int1)
        return splat(builder, to, scalar)

    with replaced(interpreter.InterpreterBuilder, "create_splat", of_any):
        yield

"""A fault of Triton's interpreter, as of 3.9: what compares two scalars has the type of these there, so that its splat
holds integers, and ``mask &= row != pad`` is no mask for a load or store."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from gemm_tuner.system.replaced import replaced


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

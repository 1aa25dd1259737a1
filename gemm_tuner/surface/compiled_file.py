"""Kernels that ``par_compile`` compiled, kept in a file and launched: on machines that have no compiler."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec

from gemm_tuner.core.errors import UserError
from gemm_tuner.kernels.problem import tuples
from gemm_tuner.languages.cute import library
from gemm_tuner.languages.cute.compiler import Needs
from gemm_tuner.surface.par_compile import Compiled


def save_compiled(compiled: Iterable[Compiled], path: Path | str) -> None:
    """Writes them with their machine code. Raises OSError."""
    Path(path).write_bytes(msgspec.json.encode(list(compiled)))


def read_compiled(path: Path | str) -> list[Compiled]:
    """What ``save_compiled`` wrote; lists in configurations are tuples. Raises UserError for another file."""
    try:
        found = msgspec.json.decode(Path(path).read_bytes(), type=list[Compiled])
    except (OSError, msgspec.MsgspecError) as error:
        raise UserError(f"holds no compiled kernels: {error}", where=str(path), hint="gt.save_compiled") from error
    for one in found:
        one.config.update(tuples(one.config))
    return found


def load_compiled(compiled: Compiled) -> Callable[..., Any]:
    """What launches a kernel of CuTe DSL: a function of the tensors and numbers that it was compiled for, on torch's
    stream. It needs apache-tvm-ffi and the DSL's runtime library, not the DSL.

    Raises ValueError for one that did not compile, and EnvironmentFault.
    """
    files = dict(compiled.artifact.files) if compiled.artifact else {}
    if set(files) != set(library.FILES):
        raise ValueError(f"there is no kernel of CuTe DSL: {compiled.status.value} {compiled.reason}")
    with tempfile.TemporaryDirectory(prefix="gemm_tuner-") as folder:
        path = Path(folder, library.LIBRARY)
        path.write_bytes(files[library.LIBRARY])
        return library.load(path, Needs.loads(files[library.NEEDS]).name)  # stays loaded without its file

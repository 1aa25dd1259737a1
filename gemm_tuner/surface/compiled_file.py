"""Saves kernels of ``par_compile`` to a file, and launches them on machines without a compiler."""

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
from gemm_tuner.system.conversion import decoded


def save_compiled(compiled: Iterable[Compiled], path: Path | str) -> None:
    """Writes compiled kernels with their machine code. Raises OSError."""
    Path(path).write_bytes(msgspec.json.encode(list(compiled)))


def read_compiled(path: Path | str) -> list[Compiled]:
    """Reads what ``save_compiled`` wrote; lists in configurations become tuples. Raises UserError for another file."""
    try:
        found: list[Compiled] = decoded(Path(path).read_bytes(), list[Compiled])
    except (OSError, msgspec.MsgspecError) as error:
        raise UserError(f"holds no compiled kernels: {error}", where=str(path), hint="gt.save_compiled") from error
    for one in found:
        one.config.update(tuples(one.config))
    return found


def load_compiled(compiled: Compiled) -> Callable[..., Any]:
    """A function that launches a CuTe DSL kernel on torch's stream; it takes the tensors and numbers for which the
    kernel was compiled. It needs apache-tvm-ffi and the DSL's runtime library, but not the DSL.

    Raises ValueError for a kernel that did not compile, and EnvironmentFault.
    """
    files = dict(compiled.artifact.files) if compiled.artifact else {}
    if set(files) != set(library.FILES):
        raise ValueError(f"there is no kernel of CuTe DSL: {compiled.status.value} {compiled.reason}")
    with tempfile.TemporaryDirectory(prefix="gemm_tuner-") as folder:
        path = Path(folder, library.LIBRARY)
        path.write_bytes(files[library.LIBRARY])
        return library.load(path, Needs.loads(files[library.NEEDS]).name)  # remains loaded after its file is deleted

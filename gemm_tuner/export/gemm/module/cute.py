"""The part of a module that launches kernels in CuTe DSL."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from gemm_tuner.core.records import Target
from gemm_tuner.export.gemm.module.objects import FILE_NAME
from gemm_tuner.export.gemm.module.rows import Tuned
from gemm_tuner.export.gemm.module.sections import ROOTS, Namespace, Section
from gemm_tuner.gemm.config import KernelConfig
from gemm_tuner.gemm.problem import GemmProblem
from gemm_tuner.languages.cute import library
from gemm_tuner.languages.cute.extra import NEEDS
from gemm_tuner.source import codegen

FAMILY = "gemm_cute"
# In place of the function that says what is compiled. Of two definitions in a script the last one counts.
KERNEL_OF = '\n\ndef kernel_of(config, size):\n    return config["kernel"]\n'


def folder_of(module: Path) -> Path:
    """The folder of a module's compiled kernels, beside it."""
    return module.with_name(f"{module.stem}_cute")


def libraries_in(folder: Path) -> set[Path]:
    """The compiled kernels that a module's folder holds, by the names that exports give them."""
    return {path for path in folder.glob("*.so") if FILE_NAME.fullmatch(path.name)}


def with_epilogues(tuned: Iterable[Tuned]) -> dict[tuple[str, str], GemmProblem]:
    """(signature of the product, epilogue) -> a problem of it, of the sizes whose kernel is in CuTe DSL."""
    return {(one.product.signature, one.epilogue): one.problem for one in tuned if one.winner is not None}


def sections_of(templates: Path, tuned: Iterable[Tuned], target: Target) -> list[Section]:
    """The scripts that launch these kernels."""
    return [
        Section(FAMILY, problem.signature, codegen.render(templates, FAMILY, problem, (), target) + KERNEL_OF)
        for problem in with_epilogues(tuned).values()
    ]


def fields(
    tuned: Iterable[Tuned], space: Namespace, folder: str, config_fields: Callable[[KernelConfig], str]
) -> dict[str, Any] | None:
    """What the template takes; None if no kernel is in CuTe DSL. folder: name of the folder of the compiled kernels."""
    mine = [(one, one.winner) for one in tuned if one.winner is not None]
    if not mine:
        return None
    rows = {}
    for one, winner in mine:
        p = one.problem
        made = winner.object
        key = (one.product.signature, p.m, p.n, p.k, p.batch, one.epilogue)
        rows[key] = (winner.config.name, made.file, made.kernel, winner.time_us, one.time_us)
    functions = {
        (product, epilogue): [space.names[FAMILY, problem.signature, root] for root in ROOTS]
        for (product, epilogue), problem in with_epilogues(tuned).items()
    }
    return {
        "rows": rows,
        "configs": {winner.config.name: config_fields(winner.config) for _, winner in mine},
        "functions": functions,
        "folder": folder,
        "needs": NEEDS,
        "variable": library.RUNTIME_VARIABLE,
        "runtime": library.RUNTIME,
        "runtime_folders": library.RUNTIME_FOLDERS,
    }

"""The sizes to tune: those of a file, or one of flags, with the types that flags give."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from rich.console import Console

from gemm_tuner.cli.parser import see_help
from gemm_tuner.core.errors import UserError
from gemm_tuner.gemm.families.family import require_known
from gemm_tuner.gemm.problem import GemmProblem, Layout
from gemm_tuner.gemm.problem_keys import Defaults, problem_of
from gemm_tuner.moe.problem import MoeProblem
from gemm_tuner.pipeline.run_options import RunOptions
from gemm_tuner.store.sizes import Loaded, SizeEntry, load_file, sizes_of
from gemm_tuner.system.terminal_table import print_line

# Two values of each flag that applies to all sizes, to try a value other than the given one.
VALUES: dict[str, tuple[Any, Any]] = {
    **dict.fromkeys(("dtype", "dtype_a", "dtype_b", "dtype_c"), ("fp16", "bf16")),
    **dict.fromkeys(("layout_a", "layout_b"), ("row", "col")),
    **dict.fromkeys(("col_a", "col_b", "bias"), (True, False)),
    **dict.fromkeys(("alpha", "beta"), (1.0, 2.0)),
    "batch": (1, 2),
    "activation": ("none", "relu"),
    "scaling": ("none", "tensor"),
    "precision": ("ieee", "tf32"),
}


def defaults_from(arguments: argparse.Namespace) -> Defaults:
    """Default values from flags, which entries of a file may override."""
    if arguments.dtype and (arguments.dtype_a or arguments.dtype_b):
        accepted = "one of them; --dtype_c goes with both"
        raise UserError("is given beside --dtype_a or --dtype_b", where="--dtype", accepted=accepted)
    dtype_a = arguments.dtype or arguments.dtype_a or arguments.dtype_b or "bf16"
    return Defaults(
        dtype_a=dtype_a,
        dtype_b=arguments.dtype_b or dtype_a,
        dtype_c=arguments.dtype_c or "",
        layout_a=Layout.COL if arguments.col_a else Layout(arguments.layout_a or "row"),
        layout_b=Layout.COL if arguments.col_b else Layout(arguments.layout_b or "row"),
        batch=arguments.batch,
        bias=arguments.bias,
        activation=arguments.activation,
        alpha=arguments.alpha,
        beta=arguments.beta,
        scaling=arguments.scaling,
        precision=arguments.precision,
    )


def read_sizes(arguments: argparse.Namespace, console: Console) -> tuple[SizeEntry, ...]:
    """The sizes from the file or the flags. Raises UserError for none, both, or an invalid one."""
    defaults = defaults_from(arguments)
    mnk = [getattr(arguments, name) for name in ("m", "n", "k")]
    given = [value is not None for value in mnk]
    accepted = "--gemm_size_file FILE, or -m M -n N -k K"
    if arguments.gemm_size_file is not None:
        if any(given):
            raise UserError("both --gemm_size_file and -m, -n or -k are given", accepted=accepted)
        loaded = load_file(arguments.gemm_size_file)
        sizes = sizes_of(loaded, defaults)
        if {entry.problem.kind for entry in sizes.entries} == {GemmProblem.kind, MoeProblem.kind}:
            raise UserError("holds GEMMs and fused MoE layers", where=loaded.name, accepted="sizes of one kind",
                            hint="the subcommand moe tunes both, by --from in place of --gemm_size_file")  # fmt: skip
        for line in idle_flags(arguments, loaded, sizes.entries):
            print_line(console, line)
        if sizes.duplicates:
            print_line(console, f"{loaded.name}: {sizes.duplicates} repeated sizes are tuned once")
        known = {entry.problem for entry in sizes.entries}
        retried = tuple(SizeEntry(p) for p in sizes.without_config if p not in known)
        return sizes.entries + (() if arguments.benchmark or arguments.compare_wo_tuning else retried)
    if not all(given):
        raise UserError(
            "no size is given" if not any(given) else "a size needs all of -m, -n and -k",
            accepted=accepted,
            hint=see_help(),
        )
    return (one_size(mnk[0], mnk[1], mnk[2], defaults),)


def require_families(run: RunOptions, *, given: bool) -> None:
    """Raises UserError for a GEMM whose configuration is to run and is of an unknown family. given: the configurations
    of the sizes themselves are to run, not only those of --update."""
    entries = [entry for entry in run.entries if entry.problem.kind == GemmProblem.kind]
    for entry in entries:
        if given and entry.config is not None:
            require_known(entry.config.family, run.templates_dir, entry.where or entry.problem.key)
        if entry.problem in run.older:
            require_known(run.older[entry.problem].family, run.templates_dir, f"--update, {entry.problem.key}")


def one_size(m: int, n: int, k: int, defaults: Defaults) -> SizeEntry:
    """The size given by the flags -m, -n and -k. Raises UserError as ``sizes_of`` does."""
    return SizeEntry(problem_of({"M": m, "N": n, "K": k}, "the size given by -m, -n and -k", defaults))


def idle_flags(arguments: argparse.Namespace, loaded: Loaded, entries: Sequence[SizeEntry]) -> list[str]:
    """Lines about flags for sizes that have no effect, because every entry of the file has its own value.

    entries: the sizes with all flags as given.
    """
    lines = []
    for name in sorted(VALUES.keys() & arguments.given):
        other = next(value for value in VALUES[name] if value != getattr(arguments, name))
        try:
            same = sizes_of(loaded, defaults_from(argparse.Namespace(**{**vars(arguments), name: other}))).entries
        except UserError:  # with another value an entry is invalid, so the flag has an effect
            continue
        if tuple(same) == tuple(entries):
            lines.append(f"{arguments.given[name]} changes nothing: every entry of {loaded.name} says it itself")
    return lines

"""Selects the rows of a results file for a module."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

from gemm_tuner.core.records import Verified
from gemm_tuner.export.gemm.module.objects import Object
from gemm_tuner.export.gemm.rows import gemm_of, tile_of
from gemm_tuner.export.offers import LeftOut, elsewhere, known_wrong, remark
from gemm_tuner.export.trust import Trust
from gemm_tuner.gemm.config import KernelConfig, tile
from gemm_tuner.gemm.families.family import family_of, known_families
from gemm_tuner.gemm.problem import GemmProblem
from gemm_tuner.store.results import Results, Row


@dataclass(frozen=True, slots=True)
class Winner:
    """A winner in CuTe DSL. time_us: measured, in the finals of its substitute. verified: how its result was checked.
    object: what was compiled of it."""

    config: KernelConfig
    time_us: float
    verified: Verified
    object: Object


@dataclass(frozen=True, slots=True)
class Tuned:
    """A size of the module.

    config:   in Triton; a winner's substitute if the winner is in CuTe DSL.
    time_us:  of config: measured time, else predicted time; None if unknown.
    verified: how the result of config was checked.
    source:   of its time: measured, replayed or predicted; "" if unknown.
    row:      the row that it was taken from, if that has its winner in CuTe DSL.
    winner:   if in CuTe DSL, and the module has its kernel.
    """

    problem: GemmProblem
    config: KernelConfig
    time_us: float | None
    verified: Verified = Verified.TRUE
    source: str = "measured"
    row: Row | None = None
    winner: Winner | None = None

    @property
    def remark(self) -> str:
        """What to say about its kernels if one was not checked on a GPU; "" if all were."""
        own, of_winner = remark(self.verified), remark(self.winner.verified) if self.winner else ""
        in_cute = [f"in CuTe DSL {of_winner}"] if of_winner else []
        in_triton = [f"in Triton {own}" if self.winner else own] if own else []
        return ", ".join((*in_cute, *in_triton))

    @property
    def product(self) -> GemmProblem:
        """The plain product of the size's signature: types, layouts, scales and batch, without an epilogue."""
        return replace(self.problem.as_class(), bias=False, activation="none", alpha=1.0, beta=0.0)

    @property
    def epilogue(self) -> str:
        """The name of the epilogue, such as ``alpha_beta_bias_relu``; "" for none."""
        parts = {
            "alpha": self.problem.has_alpha,
            "beta": self.problem.reads_c,
            "bias": self.problem.bias,
            self.problem.activation: self.problem.activation != "none",
        }
        return "_".join(part for part, there in parts.items() if there)


def with_bias_toggled(epilogue: str) -> str:
    """The same epilogue with a bias if it has none, and without if it has one."""
    parts = [part for part in epilogue.split("_") if part]
    if "bias" in parts:
        return "_".join(part for part in parts if part != "bias")
    at = sum(part in ("alpha", "beta") for part in parts)
    return "_".join([*parts[:at], "bias", *parts[at:]])


def select(found: Results, trust: Trust) -> tuple[tuple[Tuned, ...], tuple[LeftOut, ...]]:
    """(rows of the module, each size once; all others, with the reason).

    Rows that ``trust`` does not accept, sizes without a configuration and, beside GEMMs, rows of another kind are left
    out. Rows of a winner in CuTe DSL get their substitute. Raises UserError for a file without a GEMM.
    """
    tuned: dict[GemmProblem, Tuned] = {}
    mine = [row for row in found.rows if row.problem.kind == GemmProblem.kind]
    left_out = [
        LeftOut(problem.key, "", f"was not tuned: {reason}", served=problem.kind != GemmProblem.kind)
        for problem, reason in found.without_config
    ]
    left_out += [elsewhere(row) for row in found.rows if mine and row.problem.kind != GemmProblem.kind]
    for row in mine or found.rows:
        source = found.source_of(row)
        reason = known_wrong(row) or trust.fault(row.verified, source)
        if not reason and row.config is not None and is_optional(row):
            reason = _substitute_fault(row, trust, source)
        if not reason and gemm_of(row) in tuned:
            reason = "is in the results file twice"
        if reason:
            left_out.append(LeftOut(gemm_of(row).key, "", reason))
        elif row.substitute is not None and is_optional(row):
            one = row.substitute
            tuned[gemm_of(row)] = Tuned(gemm_of(row), tile(one.config), one.time_us, one.verified, source, row)
        elif row.config is not None:
            time_us = row.facts.get("median_us", row.facts.get("predicted_us"))
            tuned[gemm_of(row)] = Tuned(gemm_of(row), tile_of(row), time_us, row.verified, source)
    return tuple(tuned.values()), tuple(left_out)


def is_optional(row: Row) -> bool:
    """Whether a row's configuration is in another language than Triton."""
    return row.config is not None and family_of(row.config.family).language != "triton"


def _substitute_fault(row: Row, trust: Trust, source: str) -> str:
    """Why a row's substitute may not be exported; "" if it may."""
    if row.substitute is not None:
        if family_of(row.substitute.config.family).language != "triton":
            return "has a substitute that is not in Triton"
        return trust.fault(row.substitute.verified, source)
    others = ",".join(name for name, one in known_families().items() if one.language == "triton")
    return f"is in cute and its row has no substitute; tuned with --families {others} it is in Triton"


def winners(tuned: Iterable[Tuned]) -> list[tuple[Tuned, KernelConfig, float]]:
    """(size, winner, its microseconds) of the sizes whose configuration is a substitute."""
    mine = [(one, one.row) for one in tuned if one.row is not None]
    return [(one, tile_of(row), row.facts["median_us"]) for one, row in mine if "median_us" in row.facts]


def winner_fault(problem: GemmProblem, config: KernelConfig) -> str:
    """Why a module cannot launch a size's winner in CuTe DSL; "" if it can."""
    if family_of(config.family).packs:
        return "a module packs no operands for CuTe DSL"
    with_scales = problem.batch > 1 and problem.scaling != "none"
    return "a module launches no batches with scales in CuTe DSL" if with_scales else ""


def default_outputs(tuned: Iterable[Tuned]) -> dict[tuple[str, str], tuple[str, str]]:
    """(dtype_a, dtype_b) -> the default (dtype_c, precision) of a call.

    In order of preference among the tuned sizes: C of the type of A, precision ieee, the most frequent one.
    """
    counts: dict[tuple[str, str], Counter[tuple[str, str]]] = {}
    for one in tuned:
        problem = one.problem
        found = counts.setdefault((problem.dtype_a, problem.dtype_b), Counter())
        found[problem.dtype_c, problem.precision] += 1
    return {types: _preferred(found, types[0]) for types, found in counts.items()}


def _preferred(counts: Counter[tuple[str, str]], dtype_a: str) -> tuple[str, str]:
    return max(counts, key=lambda output: (output[0] == dtype_a, output[1] == "ieee", counts[output]))

"""Reads and validates one entry of a size file or results file, for any kind of problem."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, TypedDict

from msgspec import Meta

from gemm_tuner.core.choice import ServedChoice, Substitute
from gemm_tuner.core.errors import UserError
from gemm_tuner.core.records import Config, Problem, Verified
from gemm_tuner.core.workload import config_from_dict, workload_of
from gemm_tuner.gemm.config import CONFIG_FIELDS, KernelConfig, tile
from gemm_tuner.gemm.config_keys import CONFIG_KEYS, config_of
from gemm_tuner.gemm.problem import GemmProblem
from gemm_tuner.gemm.problem_keys import SIZE_KEYS, Defaults, problem_of
from gemm_tuner.gemm.served import KEYS as SERVED_KEYS
from gemm_tuner.gemm.served import served_of, verified_of
from gemm_tuner.gemm.substitutes import KEY as SUBSTITUTE_KEY
from gemm_tuner.gemm.substitutes import substitute_of
from gemm_tuner.system.documents import refuse_unknown, show
from gemm_tuner.system.json_records import Count, Finite, NotNegative, record_of

SOURCES = ("measured", "replayed", "predicted")


class OtherFacts(TypedDict, total=False):
    """Optional keys of any row besides its problem and configuration."""

    name: str
    language: str
    source: str
    runner_up: str
    kept_from: str
    found_wrong: str
    overruled: str
    predicted_us: NotNegative
    max_abs_error: Annotated[float, Meta(ge=0)]
    error_over_bound: Annotated[float, Meta(ge=0)]


class TimedFacts(TypedDict, total=False):
    """Optional keys of a row with a measured time."""

    median_us: NotNegative
    p20_us: NotNegative
    p80_us: NotNegative
    tflops: NotNegative
    roofline_pct: NotNegative
    vendor_us: NotNegative
    vendor_ratio: NotNegative
    gap_pct: Finite
    process_spread_pct: NotNegative
    samples: Count
    processes: Count
    tie: bool


class Derived(TypedDict, total=False):
    derived: dict[str, int | float | bool | str]


class Facts(OtherFacts, TimedFacts, total=False):
    """All optional keys. schedule_hint: a key of ROCm's files, accepted and ignored."""

    schedule_hint: str


TIMED_FACTS = tuple(TimedFacts.__annotations__)
FACTS = (*OtherFacts.__annotations__, *TIMED_FACTS)
KNOWN_KEYS = (*OtherFacts.__annotations__, "verified", *TIMED_FACTS)
ROW_KEYS = (*SIZE_KEYS, *CONFIG_KEYS, *KNOWN_KEYS, *SERVED_KEYS, SUBSTITUTE_KEY)
FAILURE_KEYS = (*SIZE_KEYS, "reason")
EXAMPLE = "such as - {M: 4096, N: 4096, K: 4096}"


class Failure(TypedDict):
    reason: str


@dataclass(frozen=True)
class Row:
    """One entry. facts: those of FACTS that the entry has, unchanged.

    verified: FALSE if the entry does not say. served: for the consumers of --serve. substitute: for a configuration
    in an optional language.
    """

    problem: Problem
    config: Config | None
    facts: dict[str, Any]
    where: str
    verified: Verified = Verified.FALSE
    served: tuple[ServedChoice, ...] = ()
    substitute: Substitute | None = None

    @property
    def gemm(self) -> GemmProblem:
        """The problem as a GemmProblem. Raises UserError for another kind."""
        if not isinstance(self.problem, GemmProblem):
            raise UserError(f"is a problem of the kind {self.problem.kind}", where=self.where, accepted="a GEMM")
        return self.problem

    @property
    def tile(self) -> KernelConfig:
        """The configuration as a KernelConfig; the entry must have one."""
        assert self.config is not None
        return tile(self.config)


def parse_row(raw: object, where: str, defaults: Defaults, version: int = 1) -> Row:
    """Reads one entry of any kind of file. Raises UserError.

    version: the format_version of the file.
    """
    entry = _mapping(raw, where)
    if entry.get("kind", GemmProblem.kind) != GemmProblem.kind:
        return _row_of_kind(entry, where)
    tuned = any(field in entry for field in CONFIG_FIELDS)
    accepted = "" if tuned else f"{', '.join(SIZE_KEYS)}, and the fields of a tuned config"
    refuse_unknown(entry, ROW_KEYS, where, accepted)
    facts, verified = _facts(entry, where), verified_of(entry, where)
    if version == 1 and verified is Verified.TRUE and facts.get("source") == "predicted":
        verified = Verified.INTERPRETED  # version 1 has only true and false, and predicted rows never ran on a GPU
    problem, config = problem_of(entry, where, defaults), config_of(entry, where)
    served, substitute = served_of(entry, where), substitute_of(entry, where)
    return Row(problem, config, facts, where, verified, served, substitute)


def _row_of_kind(entry: dict[Any, Any], where: str) -> Row:
    """An entry of another kind than GEMM. Keys that are neither the problem's nor common to all rows are the fields of
    the tuned configuration."""
    problem = _problem_of_kind(entry, where)
    derived = {key: entry[key] for key in Derived.__annotations__ if key in entry}
    record_of(Derived, derived, where)
    facts, verified = {**_facts(entry, where), **derived}, verified_of(entry, where)
    known = {*problem.to_dict(), *KNOWN_KEYS, *SERVED_KEYS, *Derived.__annotations__, "reason"}
    fields = {key: value for key, value in entry.items() if key not in known}
    try:
        config = config_from_dict(problem.kind, fields) if fields else None
    except (TypeError, ValueError) as error:
        raise UserError(f"has no such configuration: {error}", where=where) from error
    return Row(problem, config, facts, where, verified)


def _problem_of_kind(entry: dict[Any, Any], where: str) -> Problem:
    try:
        workload = workload_of(str(entry["kind"]))
        return workload.problem_from_dict({key: entry[key] for key in workload.problem_keys if key in entry})
    except ValueError as error:
        raise UserError(str(error), where=where) from error


def parse_failure(raw: object, where: str, defaults: Defaults) -> tuple[Problem, str]:
    entry = _mapping(raw, where)
    other = entry.get("kind", GemmProblem.kind) != GemmProblem.kind
    if not other:
        refuse_unknown(entry, FAILURE_KEYS, where)
    reason = record_of(Failure, {key: entry[key] for key in ("reason",) if key in entry}, where)["reason"]
    return _problem_of_kind(entry, where) if other else problem_of(entry, where, defaults), reason


def _mapping(raw: object, where: str) -> dict[Any, Any]:
    if not isinstance(raw, dict):
        raise UserError(f"is {show(raw)} and not a mapping", where=where, accepted=f"a mapping, {EXAMPLE}")
    return raw


def _facts(entry: dict[Any, Any], where: str) -> dict[str, Any]:
    given = {key: entry[key] for key in (*FACTS, "schedule_hint") if key in entry}
    if not given:
        return {}
    record_of(Facts, given, where)
    source = given.get("source")
    if source is not None and source not in SOURCES:
        raise UserError(f"source is {show(source)}", where=where, accepted=", ".join(SOURCES))
    foreign = TIMED_FACTS if source == "predicted" else ("predicted_us",) if source else ()
    for key in foreign:
        if key in given:
            raise UserError(f"{key} does not belong in a row whose source is {source}", where=where)
    return {key: given[key] for key in FACTS if key in given}

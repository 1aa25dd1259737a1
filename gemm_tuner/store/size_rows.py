"""Reads and validates one entry of a size file or results file, for any kind of problem."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypedDict

from gemm_tuner.core.choice import ServedChoice, Substitute
from gemm_tuner.core.errors import UserError
from gemm_tuner.core.records import Config, Problem, Verified
from gemm_tuner.core.workload import FIRST_KIND, Workload, workload_of
from gemm_tuner.store.served import KEYS as SERVED_KEYS
from gemm_tuner.store.served import served_of, verified_of
from gemm_tuner.store.substitutes import KEY as SUBSTITUTE_KEY
from gemm_tuner.store.substitutes import substitute_of, substitute_of_any_keys
from gemm_tuner.system.documents import refuse_unknown, show
from gemm_tuner.system.json_records import record_of
from gemm_tuner.system.row_facts import FACTS, KNOWN_KEYS, TIMED_FACTS, Derived, Facts

SOURCES = ("measured", "replayed", "predicted")
IGNORED = "schedule_hint"  # a key of ROCm's files


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


def parse_row(raw: object, where: str, defaults: Any = None, version: int = 1) -> Row:
    """Reads one entry of any kind of file. Raises UserError.

    defaults: as ``Entries.problem_of`` takes them. version: the format_version of the file.
    """
    entry = _mapping(raw, where)
    workload = _workload_of(entry, where)
    entries = workload.entries
    if entries is None:
        return _row_of_any_keys(entry, where, workload)
    tuned = any(field in entry for field in entries.config_fields)
    accepted = "" if tuned else f"{', '.join(workload.problem_keys)}, and the fields of a tuned config"
    refuse_unknown(entry, keys_of(workload), where, accepted)
    facts, verified = _facts(entry, where), verified_of(entry, where)
    if version == 1 and verified is Verified.TRUE and facts.get("source") == "predicted":
        verified = Verified.INTERPRETED  # version 1 has only true and false, and predicted rows never ran on a GPU
    problem, config = entries.problem_of(entry, where, defaults), entries.config_of(entry, where)
    served, substitute = served_of(entry, where, entries), substitute_of(entry, where, entries)
    return Row(problem, config, facts, where, verified, served, substitute)


def keys_of(workload: Workload) -> tuple[str, ...]:
    """All keys of an entry of a kind whose ``entries`` say which fields its configurations have."""
    fields = workload.entries.config_fields if workload.entries else ()
    return (*workload.problem_keys, *fields, IGNORED, *KNOWN_KEYS, *SERVED_KEYS, SUBSTITUTE_KEY)


def _row_of_any_keys(entry: dict[Any, Any], where: str, workload: Workload) -> Row:
    """An entry whose keys that are neither the problem's nor common to all rows are the fields of the tuned
    configuration."""
    problem = _problem_of_any_keys(entry, where, workload)
    derived = {key: entry[key] for key in Derived.__annotations__ if key in entry}
    record_of(Derived, derived, where)
    facts, verified = {**_facts(entry, where), **derived}, verified_of(entry, where)
    known = {*problem.to_dict(), *KNOWN_KEYS, *SERVED_KEYS, *Derived.__annotations__, SUBSTITUTE_KEY, "reason"}
    fields = {key: value for key, value in entry.items() if key not in known}
    try:
        config = workload.config_from_dict(fields) if fields else None
    except (TypeError, ValueError) as error:
        raise UserError(f"has no such configuration: {error}", where=where) from error
    substitute = substitute_of_any_keys(entry, where, workload.config_from_dict)
    return Row(problem, config, facts, where, verified, substitute=substitute)


def _workload_of(entry: dict[Any, Any], where: str) -> Workload:
    try:
        return workload_of(str(entry.get("kind", FIRST_KIND)))
    except ValueError as error:
        raise UserError(str(error), where=where) from error


def _problem_of_any_keys(entry: dict[Any, Any], where: str, workload: Workload) -> Problem:
    try:
        return workload.problem_from_dict({key: entry[key] for key in workload.problem_keys if key in entry})
    except ValueError as error:
        raise UserError(str(error), where=where) from error


def parse_failure(raw: object, where: str) -> tuple[Problem, str]:
    """(problem, reason) of an entry of a results file for a size without a configuration. Raises UserError."""
    entry = _mapping(raw, where)
    workload = _workload_of(entry, where)
    entries = workload.entries
    if entries is not None:
        refuse_unknown(entry, (*workload.problem_keys, "reason"), where)
    reason = record_of(Failure, {key: entry[key] for key in ("reason",) if key in entry}, where)["reason"]
    if entries is not None:
        return entries.problem_of(entry, where, None), reason
    return _problem_of_any_keys(entry, where, workload), reason


def example() -> str:
    """An entry of a size file, for messages."""
    entries = workload_of(FIRST_KIND).entries
    return f"such as {entries.example}" if entries else ""


def _mapping(raw: object, where: str) -> dict[Any, Any]:
    if not isinstance(raw, dict):
        raise UserError(f"is {show(raw)} and not a mapping", where=where, accepted=f"a mapping, {example()}")
    return raw


def _facts(entry: dict[Any, Any], where: str) -> dict[str, Any]:
    given = {key: entry[key] for key in (*FACTS, IGNORED) if key in entry}
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

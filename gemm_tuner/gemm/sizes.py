"""The sizes to tune: from a list, from a results file, from ROCm's tuned list, or from -m, -n and -k.

The keys of an entry are those of ``problem_keys`` and ``config_keys`` and, here, what a results row says beside them.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypedDict

from msgspec import Meta

from gemm_tuner.core.choice import ServedChoice
from gemm_tuner.core.errors import UserError
from gemm_tuner.core.records import Config, Problem, Verified
from gemm_tuner.core.workload import config_from_dict, workload_of
from gemm_tuner.gemm.config import CONFIG_FIELDS, KernelConfig, tile
from gemm_tuner.gemm.config_keys import CONFIG_KEYS, config_form, config_of
from gemm_tuner.gemm.problem import GemmProblem
from gemm_tuner.gemm.problem_keys import SIZE_KEYS, Defaults, problem_of
from gemm_tuner.gemm.served import KEYS as SERVED_KEYS
from gemm_tuner.gemm.served import served_of, verified_of
from gemm_tuner.system.documents import MAX_FILE_BYTES, refuse_unknown, show, yaml_value
from gemm_tuner.system.input_files import printable, read_text
from gemm_tuner.system.json_records import Count, Finite, NotNegative, record_of

FORMAT_VERSION = 2
READABLE_VERSIONS = (1, 2)
SOURCES = ("measured", "replayed", "predicted")


class OtherFacts(TypedDict, total=False):
    """What a row says beside its problem and its configuration, timed or not."""

    name: str
    source: str
    runner_up: str
    kept_from: str
    found_wrong: str
    overruled: str
    predicted_us: NotNegative
    max_abs_error: Annotated[float, Meta(ge=0)]
    error_over_bound: Annotated[float, Meta(ge=0)]


class TimedFacts(TypedDict, total=False):
    """What only a row with a measured time says."""

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


class Facts(OtherFacts, TimedFacts, total=False):
    """schedule_hint: ROCm's, read and left alone."""

    schedule_hint: str


TIMED_FACTS = tuple(TimedFacts.__annotations__)
FACTS = (*OtherFacts.__annotations__, *TIMED_FACTS)
KNOWN_KEYS = (*OtherFacts.__annotations__, "verified", *TIMED_FACTS)
ROW_KEYS = (*SIZE_KEYS, *CONFIG_KEYS, *KNOWN_KEYS, *SERVED_KEYS)
FAILURE_KEYS = (*SIZE_KEYS, "reason")
TOP_KEYS = ("format_version", "header", "earlier_headers", "configs", "without_config")

_EXAMPLE = "such as - {M: 4096, N: 4096, K: 4096}"


class Failure(TypedDict):
    reason: str


@dataclass(frozen=True)
class SizeEntry:
    """A size to tune; ``config`` is the tuned config that the entry carries, if it does, and ``served`` those for
    servers."""

    problem: Problem
    config: Config | None = None
    served: tuple[ServedChoice, ...] = ()


@dataclass(frozen=True)
class Loaded:
    """A file read as YAML, its keys not yet checked. ``name`` is the path as messages give it."""

    path: Path
    name: str
    value: object


@dataclass(frozen=True)
class SizeList:
    """The entries of a file, each problem once.

    duplicates:     how many entries repeated an earlier problem and were dropped.
    without_config: of a results file, the sizes that ended without a config; not among the entries.
    """

    entries: tuple[SizeEntry, ...]
    duplicates: int
    path: Path
    without_config: tuple[Problem, ...] = ()


@dataclass(frozen=True)
class Row:
    """One entry as read. ``facts`` holds those of FACTS that the entry has, unchanged.

    verified: FALSE where the entry does not say. served: for the consumers of --serve.
    """

    problem: Problem
    config: Config | None
    facts: dict[str, Any]
    where: str
    verified: Verified = Verified.FALSE
    served: tuple[ServedChoice, ...] = ()

    @property
    def gemm(self) -> GemmProblem:
        """The problem, for readers of GEMMs only. Raises UserError for one of another kind."""
        if not isinstance(self.problem, GemmProblem):
            raise UserError(f"is a problem of the kind {self.problem.kind}", where=self.where, accepted="a GEMM")
        return self.problem

    @property
    def tile(self) -> KernelConfig:
        """The configuration of a GEMM that has one."""
        assert self.config is not None
        return tile(self.config)


@dataclass(frozen=True)
class Document:
    """A size file or a results file as read; headers are raw, ``failures`` are (problem, reason)."""

    is_results: bool
    header: object
    rows: tuple[Row, ...]
    failures: tuple[tuple[Problem, str], ...]
    earlier_headers: object = ()


def load_sizes(path: str | os.PathLike[str], defaults: Defaults) -> SizeList:
    """Return the sizes of a list or of a results file. Raises UserError naming file, entry and key."""
    return sizes_of(load_file(path), defaults)


def sizes_of(loaded: Loaded, defaults: Defaults) -> SizeList:
    """The sizes of a file that is read already. Raises UserError as ``load_sizes`` does."""
    document = document_of(loaded, defaults)
    if not document.rows:
        tried = f" ({len(document.failures)} under without_config)" if document.failures else ""
        raise UserError(f"holds no sizes{tried}", where=loaded.name, accepted=f"one or more, {_EXAMPLE}")
    entries: dict[Problem, SizeEntry] = {}
    for row in document.rows:
        entries.setdefault(row.problem, SizeEntry(row.problem, row.config, row.served))
    return SizeList(
        entries=tuple(entries.values()),
        duplicates=len(document.rows) - len(entries),
        path=loaded.path,
        without_config=tuple(problem for problem, _ in document.failures),
    )


def one_size(m: int, n: int, k: int, defaults: Defaults) -> SizeEntry:
    """Return the size of the flags -m, -n and -k. Raises UserError as ``load_sizes`` does."""
    return SizeEntry(problem_of({"M": m, "N": n, "K": k}, "the size given by -m, -n and -k", defaults))


def read_document(path: str | os.PathLike[str], defaults: Defaults, what: str = "size file") -> Document:
    """Read and check a size file or a results file, every key and type. Raises UserError."""
    return document_of(load_file(path, what), defaults)


def load_file(path: str | os.PathLike[str], what: str = "size file") -> Loaded:
    """Read a size file or a results file as YAML; "-" is standard input. Raises UserError."""
    text = read_text(path, what, "YAML", MAX_FILE_BYTES)
    value, name = yaml_value(text, path, what), printable(path)
    if isinstance(value, dict) and not text.endswith(("\n", "\r")):
        hint = "copy it again, or end it with a line break if it is whole"
        raise UserError("ends inside a line: it may be cut short", where=name, hint=hint)
    return Loaded(Path(path), name, value)


def document_of(loaded: Loaded, defaults: Defaults) -> Document:
    """Check every key and type of a file. Raises UserError."""
    raw, name = loaded.value, loaded.name
    if isinstance(raw, dict):
        return _results_document(raw, name)
    rows = [parse_row(item, _where(name, "entry", i, item), defaults) for i, item in _items(raw, name)]
    return Document(False, {}, tuple(rows), ())


def _results_document(raw: dict[Any, Any], name: str) -> Document:
    """A key that a row leaves out has its plain default here, whatever the command line says: rows leave those out."""
    if "format_version" not in raw:
        raise UserError(
            "is a mapping without format_version",
            where=name,
            accepted="a list of sizes, or a results file with format_version and configs",
            hint="begin each size with '- '",
        )
    version = raw["format_version"]
    if type(version) is not int or version not in READABLE_VERSIONS:
        readable = f"{READABLE_VERSIONS[0]} to {READABLE_VERSIONS[-1]}"
        raise UserError(
            f"has format_version {show(version)}, and this tuner reads {readable}",
            where=name,
            hint="use the version of the tuner that wrote the file, or tune the sizes again",
        )
    refuse_unknown(raw, TOP_KEYS, name)
    if "configs" not in raw:
        raise UserError("has no configs", where=name, accepted="configs: a list of rows")
    rows = [
        parse_row(item, _where(name, "configs entry", i, item), Defaults(), version)
        for i, item in _items(raw["configs"], f"{name}, configs")
    ]
    failures = [
        _failure(item, _where(name, "without_config entry", i, item), Defaults())
        for i, item in _items(raw.get("without_config", []), f"{name}, without_config")
    ]
    for row in rows:
        if row.config is None:
            raise UserError("has no config", where=row.where, accepted=config_form())
    return Document(True, raw.get("header", {}), tuple(rows), tuple(failures), raw.get("earlier_headers", []))


def _items(raw: object, where: str) -> list[tuple[int, object]]:
    if not isinstance(raw, list):
        raise UserError(
            f"holds {show(raw)} where a list of sizes belongs",
            where=where,
            accepted=f"a list, {_EXAMPLE}",
            hint="begin each size with '- '",
        )
    return list(enumerate(raw, 1))


def _where(name: str, section: str, number: int, item: object) -> str:
    line = getattr(item, "line", 0)
    return f"{name}, {section} {number}" + (f" (line {line})" if line else "")


def parse_row(raw: object, where: str, defaults: Defaults, version: int = 1) -> Row:
    """Check one entry, of any kind of file, and return what it says. Raises UserError.

    version: the format_version of its file.
    """
    entry = _mapping(raw, where)
    if entry.get("kind", GemmProblem.kind) != GemmProblem.kind:
        return _row_of_kind(entry, where)
    tuned = any(field in entry for field in CONFIG_FIELDS)
    accepted = "" if tuned else f"{', '.join(SIZE_KEYS)}, and the fields of a tuned config"
    refuse_unknown(entry, ROW_KEYS, where, accepted)
    facts, verified = _facts(entry, where), verified_of(entry, where)
    if version == 1 and verified is Verified.TRUE and facts.get("source") == "predicted":
        verified = Verified.INTERPRETED  # version 1 has one word for all checks, and no predicted row ran on a GPU
    problem, config = problem_of(entry, where, defaults), config_of(entry, where)
    return Row(problem, config, facts, where, verified, served_of(entry, where))


def _row_of_kind(entry: dict[Any, Any], where: str) -> Row:
    """An entry whose ``kind`` is another than GEMM's: the problem's own keys, then what every row has; the rest is the
    tuned configuration."""
    problem = _problem_of_kind(entry, where)
    facts, verified = _facts(entry, where), verified_of(entry, where)
    known = {*problem.to_dict(), *KNOWN_KEYS, *SERVED_KEYS, "reason"}
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


def _failure(raw: object, where: str, defaults: Defaults) -> tuple[Problem, str]:
    entry = _mapping(raw, where)
    other = entry.get("kind", GemmProblem.kind) != GemmProblem.kind
    if not other:
        refuse_unknown(entry, FAILURE_KEYS, where)
    reason = record_of(Failure, {key: entry[key] for key in ("reason",) if key in entry}, where)["reason"]
    return _problem_of_kind(entry, where) if other else problem_of(entry, where, defaults), reason


def _mapping(raw: object, where: str) -> dict[Any, Any]:
    if not isinstance(raw, dict):
        raise UserError(f"is {show(raw)} and not a mapping", where=where, accepted=f"a mapping, {_EXAMPLE}")
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

"""Reads the sizes to tune: from a size list, a results file, ROCm's tuned list, or -m, -n and -k.

``size_rows`` reads the entries.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gemm_tuner.core.choice import ServedChoice
from gemm_tuner.core.errors import UserError
from gemm_tuner.core.records import Config, Problem
from gemm_tuner.core.workload import workload_of
from gemm_tuner.store.size_rows import Row, example, parse_failure, parse_row
from gemm_tuner.system.documents import MAX_FILE_BYTES, refuse_unknown, show, yaml_value
from gemm_tuner.system.input_files import printable, read_text

FORMAT_VERSION = 2
READABLE_VERSIONS = (1, 2)


TOP_KEYS = ("format_version", "header", "earlier_headers", "configs", "without_config")


@dataclass(frozen=True)
class SizeEntry:
    """A size to tune, with the tuned configurations that its entry has: ``config``, and ``served`` for consumers.

    where: the file and entry, for messages.
    """

    problem: Problem
    config: Config | None = None
    served: tuple[ServedChoice, ...] = ()
    where: str = field(default="", compare=False)


@dataclass(frozen=True)
class Loaded:
    """A parsed YAML file whose keys are not validated yet. name: the path for messages."""

    path: Path
    name: str
    value: object


@dataclass(frozen=True)
class SizeList:
    """The sizes of a file, each problem once.

    duplicates:     number of entries that repeated an earlier problem and were dropped.
    without_config: for a results file, the sizes that ended without a configuration; not part of ``entries``.
    """

    entries: tuple[SizeEntry, ...]
    duplicates: int
    path: Path
    without_config: tuple[Problem, ...] = ()


@dataclass(frozen=True)
class Document:
    """A validated size file or results file. The headers are raw values. failures: (problem, reason)."""

    is_results: bool
    header: object
    rows: tuple[Row, ...]
    failures: tuple[tuple[Problem, str], ...]
    earlier_headers: object = ()


def sizes_of(loaded: Loaded, defaults: Any = None) -> SizeList:
    """The sizes of a size list or results file. Raises UserError naming the file, entry and key.

    defaults: as ``Entries.problem_of`` takes them.
    """
    document = document_of(loaded, defaults)
    if not document.rows:
        tried = f" ({len(document.failures)} under without_config)" if document.failures else ""
        raise UserError(f"holds no sizes{tried}", where=loaded.name, accepted=f"one or more, {example()}")
    entries: dict[Problem, SizeEntry] = {}
    for row in document.rows:
        entries.setdefault(row.problem, SizeEntry(row.problem, row.config, row.served, row.where))
    return SizeList(
        entries=tuple(entries.values()),
        duplicates=len(document.rows) - len(entries),
        path=loaded.path,
        without_config=tuple(problem for problem, _ in document.failures),
    )


def load_file(path: str | os.PathLike[str], what: str = "size file") -> Loaded:
    """Read a size file or a results file as YAML; "-" is standard input. Raises UserError."""
    text = read_text(path, what, "YAML", MAX_FILE_BYTES)
    value, name = yaml_value(text, path, what), printable(path)
    if isinstance(value, dict) and not text.endswith(("\n", "\r")):
        hint = "copy it again, or end it with a line break if it is whole"
        raise UserError("ends inside a line: it may be cut short", where=name, hint=hint)
    return Loaded(Path(path), name, value)


def document_of(loaded: Loaded, defaults: Any = None) -> Document:
    """Validates every key and type of a size file or results file. Raises UserError."""
    raw, name = loaded.value, loaded.name
    if isinstance(raw, dict):
        return _results_document(raw, name)
    rows = [parse_row(item, _where(name, "entry", i, item), defaults) for i, item in _items(raw, name)]
    return Document(False, {}, tuple(rows), ())


def _results_document(raw: dict[Any, Any], name: str) -> Document:
    """A results file. Missing keys of rows get the fixed defaults, not those of the command line, because rows are
    written without keys that are at their defaults."""
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
    if raw.get("header") and "without_config" not in raw:  # which is written last
        hint = "copy it again, or add the line 'without_config: []' if it is whole"
        raise UserError("ends without without_config: it may be cut short", where=name, hint=hint)
    rows = [
        parse_row(item, _where(name, "configs entry", i, item), None, version)
        for i, item in _items(raw["configs"], f"{name}, configs")
    ]
    failures = [
        parse_failure(item, _where(name, "without_config entry", i, item))
        for i, item in _items(raw.get("without_config", []), f"{name}, without_config")
    ]
    for row in rows:
        if row.config is None:
            entries = workload_of(row.problem.kind).entries
            raise UserError("has no config", where=row.where, accepted=entries.config_form() if entries else "")
    return Document(True, raw.get("header", {}), tuple(rows), tuple(failures), raw.get("earlier_headers", []))


def _items(raw: object, where: str) -> list[tuple[int, object]]:
    if not isinstance(raw, list):
        raise UserError(
            f"holds {show(raw)} where a list of sizes belongs",
            where=where,
            accepted=f"a list, {example()}",
            hint="begin each size with '- '",
        )
    return list(enumerate(raw, 1))


def _where(name: str, section: str, number: int, item: object) -> str:
    line = getattr(item, "line", 0)
    return f"{name}, {section} {number}" + (f" (line {line})" if line else "")

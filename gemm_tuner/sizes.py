"""The sizes to tune: from a list, from a results file, from ROCm's tuned list, or from -m, -n and -k.

This module alone knows the keys of an entry; ``results`` writes and reads rows through it.
"""

from __future__ import annotations

import dataclasses
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gemm_tuner.documents import check_kind, load_yaml, printable, refuse_unknown, show
from gemm_tuner.dtypes import DTYPES
from gemm_tuner.errors import UserError
from gemm_tuner.records import AMD_NAME_PARTS, CONFIG_FIELDS, GemmProblem, KernelConfig, Layout

FORMAT_VERSION = 1
MAX_DIMENSION = 2**31 - 1
MAX_CONFIG_VALUE = 2**20  # elements: the largest tile that Triton takes
SOURCES = ("measured", "replayed", "predicted")

SIZE_KEYS = (
    *("M", "N", "K", "dtype", "dtype_a", "dtype_b", "dtype_c"),
    *("layout_a", "layout_b", "rowMajorA", "rowMajorB", "bias"),
)
CONFIG_KEYS = (*CONFIG_FIELDS, "schedule_hint")  # schedule_hint: ROCm's, read and left alone
_TIMED_NUMBERS = (
    *("median_us", "p20_us", "p80_us", "tflops", "roofline_pct"),
    *("vendor_us", "vendor_ratio", "gap_pct"),
)
TIMED_FACTS = {**dict.fromkeys(_TIMED_NUMBERS, "number"), "samples": "count", "tie": "flag"}
FACTS = {
    **dict.fromkeys(("name", "source", "runner_up"), "text"),
    **dict.fromkeys(("predicted_us", "max_abs_error", "error_over_bound"), "number"),
    "verified": "flag",
    **TIMED_FACTS,
}
ROW_KEYS = (*SIZE_KEYS, *CONFIG_KEYS, *FACTS)
FAILURE_KEYS = (*SIZE_KEYS, "reason")
TOP_KEYS = ("format_version", "header", "configs", "without_config")

_OPTIONAL_CONFIG = {"family": "gemm_tile", "GROUP_SIZE_M": 1, "SPLIT_K": 1}
_AMD_FIELDS = tuple(field for field, _ in AMD_NAME_PARTS)
_POWERS_OF_TWO = ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "num_warps")
_ROW_MAJOR = {"T": Layout.ROW, "N": Layout.COL, True: Layout.ROW, False: Layout.COL}
_EXAMPLE = "such as - {M: 4096, N: 4096, K: 4096}"
_LAYOUTS = {layout.value: layout for layout in Layout}


@dataclass(frozen=True)
class Defaults:
    """What the command line says, for the entries that are silent on it."""

    dtype_a: str = "bf16"
    dtype_b: str = "bf16"
    dtype_c: str = "bf16"
    layout_a: Layout = Layout.ROW
    layout_b: Layout = Layout.ROW
    epilogue: str = "none"


@dataclass(frozen=True)
class SizeEntry:
    """A size to tune; ``config`` is the tuned config that the entry carries, if it does."""

    problem: GemmProblem
    config: KernelConfig | None = None


@dataclass(frozen=True)
class SizeList:
    """The entries of a file, each problem once.

    duplicates:     how many entries repeated an earlier problem and were dropped.
    without_config: of a results file, the sizes that ended without a config; not among the entries.
    """

    entries: tuple[SizeEntry, ...]
    duplicates: int
    path: Path
    without_config: tuple[GemmProblem, ...] = ()


@dataclass(frozen=True)
class Row:
    """One entry as read. ``facts`` holds those of FACTS that the entry has, unchanged."""

    problem: GemmProblem
    config: KernelConfig | None
    facts: dict[str, Any]
    where: str


@dataclass(frozen=True)
class Document:
    """A size file or a results file as read; ``header`` is raw, ``failures`` are (problem, reason)."""

    is_results: bool
    header: object
    rows: tuple[Row, ...]
    failures: tuple[tuple[GemmProblem, str], ...]


def load_sizes(path: str | os.PathLike[str], defaults: Defaults) -> SizeList:
    """Return the sizes of a list or of a results file. Raises UserError naming file, entry and key."""
    document = read_document(path, defaults)
    if not document.rows:
        tried = f" ({len(document.failures)} under without_config)" if document.failures else ""
        raise UserError(f"holds no sizes{tried}", where=printable(path), accepted=f"one or more, {_EXAMPLE}")
    entries: dict[GemmProblem, SizeEntry] = {}
    for row in document.rows:
        entries.setdefault(row.problem, SizeEntry(row.problem, row.config))
    return SizeList(
        entries=tuple(entries.values()),
        duplicates=len(document.rows) - len(entries),
        path=Path(path),
        without_config=tuple(problem for problem, _ in document.failures),
    )


def one_size(m: int, n: int, k: int, defaults: Defaults) -> SizeEntry:
    """Return the size of the flags -m, -n and -k. Raises UserError as ``load_sizes`` does."""
    return SizeEntry(_problem({"M": m, "N": n, "K": k}, "the size given by -m, -n and -k", defaults))


def read_document(path: str | os.PathLike[str], defaults: Defaults, what: str = "size file") -> Document:
    """Read and check a size file or a results file, every key and type. Raises UserError."""
    raw, name = load_yaml(path, what), printable(path)
    if isinstance(raw, dict):
        return _results_document(raw, name, defaults)
    rows = [parse_row(item, _where(name, "entry", i, item), defaults) for i, item in _items(raw, name)]
    return Document(False, {}, tuple(rows), ())


def _results_document(raw: dict[Any, Any], name: str, defaults: Defaults) -> Document:
    if "format_version" not in raw:
        raise UserError(
            "is a mapping without format_version",
            where=name,
            accepted="a list of sizes, or a results file with format_version and configs",
            hint="begin each size with '- '",
        )
    version = raw["format_version"]
    if type(version) is not int or version != FORMAT_VERSION:
        raise UserError(
            f"has format_version {show(version)}, and this tuner reads {FORMAT_VERSION}",
            where=name,
            hint="use the version of the tuner that wrote the file, or tune the sizes again",
        )
    refuse_unknown(raw, TOP_KEYS, name)
    if "configs" not in raw:
        raise UserError("has no configs", where=name, accepted="configs: a list of rows")
    rows = [
        parse_row(item, _where(name, "configs entry", i, item), defaults)
        for i, item in _items(raw["configs"], f"{name}, configs")
    ]
    failures = [
        _failure(item, _where(name, "without_config entry", i, item), defaults)
        for i, item in _items(raw.get("without_config", []), f"{name}, without_config")
    ]
    for row in rows:
        if row.config is None:
            raise UserError("has no config", where=row.where, accepted=_config_form())
    return Document(True, raw.get("header", {}), tuple(rows), tuple(failures))


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


def parse_row(raw: object, where: str, defaults: Defaults) -> Row:
    """Check one entry, of any kind of file, and return what it says. Raises UserError."""
    entry = _mapping(raw, where)
    tuned = any(field in entry for field in CONFIG_FIELDS)
    accepted = "" if tuned else f"{', '.join(SIZE_KEYS)}, and the fields of a tuned config"
    refuse_unknown(entry, ROW_KEYS, where, accepted)
    return Row(_problem(entry, where, defaults), _config(entry, where), _facts(entry, where), where)


def _failure(raw: object, where: str, defaults: Defaults) -> tuple[GemmProblem, str]:
    entry = _mapping(raw, where)
    refuse_unknown(entry, FAILURE_KEYS, where)
    check_kind(entry, "reason", "text", where)
    return _problem(entry, where, defaults), entry["reason"]


def _mapping(raw: object, where: str) -> dict[Any, Any]:
    if not isinstance(raw, dict):
        raise UserError(f"is {show(raw)} and not a mapping", where=where, accepted=f"a mapping, {_EXAMPLE}")
    return raw


def _problem(entry: dict[Any, Any], where: str, defaults: Defaults) -> GemmProblem:
    m, n, k = (_integer(entry, key, where, 1, MAX_DIMENSION) for key in ("M", "N", "K"))
    dtype_a, dtype_b, dtype_c = _dtypes(entry, where, defaults)
    if "bias" in entry:
        check_kind(entry, "bias", "flag", where)
    epilogue = ("bias" if entry["bias"] else "none") if "bias" in entry else defaults.epilogue
    layout_a = _layout(entry, "layout_a", "rowMajorA", where, defaults.layout_a)
    layout_b = _layout(entry, "layout_b", "rowMajorB", where, defaults.layout_b)
    return GemmProblem(m, n, k, dtype_a, dtype_b, dtype_c, layout_a, layout_b, epilogue)


def _integer(entry: dict[Any, Any], key: str, where: str, low: int, high: int) -> int:
    value = entry.get(key)
    if type(value) is int and low <= value <= high:
        return value
    accepted = f"an integer from {low} to {high}"
    if key not in entry:
        raise UserError(f"{key} is missing", where=where, accepted=accepted)
    hint = ""
    if isinstance(value, float) and value.is_integer():
        hint = f"write {int(value)}, without a fraction" if abs(value) < 2**63 else ""
    elif isinstance(value, str) and re.fullmatch("[0-9]{1,10}", value):
        hint = f"write {value}, without quotes"
    raise UserError(f"{key} is {show(value)}", where=where, accepted=accepted, hint=hint)


def _dtypes(entry: dict[Any, Any], where: str, defaults: Defaults) -> list[str]:
    keys = ("dtype_a", "dtype_b", "dtype_c")
    _refuse_both(entry, "dtype", keys, where)
    found = [entry.get("dtype", entry.get(key, getattr(defaults, key))) for key in keys]
    for key, dtype in zip(keys, found, strict=True):
        if not isinstance(dtype, str) or dtype not in DTYPES:
            name = "dtype" if "dtype" in entry else key
            raise UserError(f"{name} is {show(dtype)}", where=where, accepted=", ".join(DTYPES))
    if found[0] != found[1]:
        raise UserError(
            f"dtype_a is {found[0]} and dtype_b is {found[1]}: mixed input types are not supported yet",
            where=where,
            accepted=f"the same type for both, one of {', '.join(DTYPES)}",
            hint="give dtype_a and dtype_b, or dtype for all three",
        )
    return found


def _layout(entry: dict[Any, Any], key: str, rocm_key: str, where: str, default: Layout) -> Layout:
    _refuse_both(entry, key, (rocm_key,), where)
    value = entry.get(key, entry.get(rocm_key))
    if rocm_key in entry:
        if isinstance(value, (str, bool)) and value in _ROW_MAJOR:
            return _ROW_MAJOR[value]
        accepted = "T or true (row-major), N or false (column-major)"
        raise UserError(f"{rocm_key} is {show(value)}", where=where, accepted=accepted)
    if key not in entry:
        return default
    if isinstance(value, str) and value in _LAYOUTS:
        return _LAYOUTS[value]
    raise UserError(f"{key} is {show(value)}", where=where, accepted=", ".join(_LAYOUTS))


def _refuse_both(entry: dict[Any, Any], key: str, others: tuple[str, ...], where: str) -> None:
    clash = [other for other in others if other in entry]
    if key in entry and clash:
        raise UserError(f"both {key} and {clash[0]} are given", where=where, hint="delete one of the two")


def _config_form() -> str:
    required = [f for f in CONFIG_FIELDS if f not in _OPTIONAL_CONFIG and f not in _AMD_FIELDS]
    return f"{', '.join(required)}; optional {', '.join((*_OPTIONAL_CONFIG, *_AMD_FIELDS))}"


def _config(entry: dict[Any, Any], where: str) -> KernelConfig | None:
    if not any(field in entry for field in CONFIG_FIELDS):
        return None
    values: dict[str, Any] = {}
    for field in dataclasses.fields(KernelConfig):
        if field.name in entry:
            values[field.name] = _config_value(entry, field.name, where)
        elif field.name in _OPTIONAL_CONFIG:
            values[field.name] = _OPTIONAL_CONFIG[field.name]
        elif field.default is dataclasses.MISSING:
            raise UserError(
                f"the config lacks {field.name}",
                where=where,
                accepted=_config_form(),
                hint="or delete the config's keys to have the size tuned",
            )
    if any(values.get(field) for field in _AMD_FIELDS) and not values.setdefault("kpack", 1):
        # A silent row has Triton's default, 1; an explicit 0 says "not AMD" and contradicts the others.
        raise UserError("kpack is 0 beside other AMD options", where=where, accepted="1 or more")
    return KernelConfig(**values)


def _config_value(entry: dict[Any, Any], key: str, where: str) -> object:
    value = entry[key]
    if key == "family":
        if isinstance(value, str) and re.fullmatch("[a-z][a-z0-9_]{0,63}", value):
            return value
        raise UserError(f"family is {show(value)}", where=where, accepted="a name such as gemm_tile")
    if key == "num_stages" and type(value) is int and value == 0:
        hint = "older ROCm files write 0 for what is 2 today"
        raise UserError("num_stages is 0", where=where, accepted="1 or more", hint=hint)
    number = _integer(entry, key, where, 0 if key in _AMD_FIELDS else 1, MAX_CONFIG_VALUE)
    if key in _POWERS_OF_TWO and number & (number - 1):
        raise UserError(f"{key} is {number}", where=where, accepted="a power of two")
    return number


def _facts(entry: dict[Any, Any], where: str) -> dict[str, Any]:
    facts = {key: entry[key] for key in FACTS if key in entry}
    for key in facts:
        check_kind(entry, key, FACTS[key], where)
    source = facts.get("source")
    if source is not None and source not in SOURCES:
        raise UserError(f"source is {show(source)}", where=where, accepted=", ".join(SOURCES))
    foreign = TIMED_FACTS if source == "predicted" else ("predicted_us",) if source else ()
    for key in foreign:
        if key in facts:
            raise UserError(f"{key} does not belong in a row whose source is {source}", where=where)
    if "schedule_hint" in entry:
        check_kind(entry, "schedule_hint", "text", where)
    return facts

"""Reads and writes results files: a header and one row per size. docs/results_format.md describes the format.

``size_rows`` defines and validates rows, so a results file can also be used as a size file.
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gemm_tuner.core.choice import Choice
from gemm_tuner.core.errors import UserError
from gemm_tuner.core.records import Problem, Verified
from gemm_tuner.core.workload import workload_of
from gemm_tuner.store.served import served_rows
from gemm_tuner.store.size_rows import SOURCES, Row
from gemm_tuner.store.sizes import FORMAT_VERSION, document_of, load_file
from gemm_tuner.store.substitutes import substitute_row
from gemm_tuner.system.documents import dump_yaml, show, write_text_atomically
from gemm_tuner.system.input_files import printable
from gemm_tuner.system.json_records import Count, record_of
from gemm_tuner.system.row_facts import TIMED_FACTS

__all__ = ["FORMAT_VERSION", "Header", "Results", "Row", "read", "write_rows"]

_PREAMBLE = "# Written by tune_gemm.py; docs/results_format.md explains the fields. Times are in microseconds.\n"


@dataclass(frozen=True)
class Header:
    """Where and how the rows were measured. Every field is written; unknown ones as an empty string.

    date:       ISO 8601, UTC, such as 2026-01-31T12:00:00Z.
    arch:       such as sm_90 or gfx942.
    num_sms:    number of multiprocessors (NVIDIA) or compute units (AMD) that kernels could use; 0 without a GPU.
    init_type:  how the operands were filled.
    l2:         state of the L2 cache before a timed launch: flushed, rotating, warm.
    source:     measured, replayed or predicted.
    run:        the run's folder, which contains its tables; see ``run_reference``.
    """

    tool_version: str
    date: str
    device: str
    arch: str
    num_sms: Count
    driver: str
    triton: str
    torch: str
    python: str
    profiler: str
    profiler_version: str
    init_type: str
    seed: Count
    l2: str
    source: str
    run: str = ""


@dataclass(frozen=True)
class Results:
    """The content of a results file. header: the fields of Header that the file has.

    without_config:  (size without a configuration, reason).
    earlier_headers: headers of the runs of rows with kept_from, identified by date.
    """

    header: dict[str, str | int]
    rows: tuple[Row, ...]
    without_config: tuple[tuple[Problem, str], ...]
    earlier_headers: tuple[dict[str, str | int], ...] = ()

    def header_of(self, row: Row) -> dict[str, str | int]:
        """The header of the run that a row is from."""
        date = row.facts.get("kept_from")
        return next((one for one in self.earlier_headers if one.get("date") == date), self.header)

    def source_of(self, row: Row) -> str:
        """measured, replayed or predicted: from the row, else from the header of its run; "" if neither has it."""
        return str(row.facts.get("source", self.header_of(row).get("source", "")))


def write_rows(
    path: str | os.PathLike[str],
    header: Mapping[str, Any],
    rows: Iterable[Mapping[str, Any]],
    failures: Iterable[tuple[Problem, str]],
    earlier_headers: Sequence[Mapping[str, Any]] = (),
) -> None:
    """Write a results file atomically. rows: from ``choice_row``, or raw rows of an older file.

    failures:        (size without a configuration, reason); written so that no size is lost.
    earlier_headers: headers of the runs of rows with kept_from.
    Raises EnvironmentFault and ValueError.
    """
    document: dict[str, Any] = {
        "format_version": FORMAT_VERSION,
        "header": dict(header),
        **({"earlier_headers": list(map(dict, earlier_headers))} if earlier_headers else {}),
        "configs": list(map(dict, rows)),
        "without_config": [{**size_keys(problem), "reason": reason} for problem, reason in failures],
    }
    write_text_atomically(path, _PREAMBLE + dump_yaml(document))


def read(path: str | os.PathLike[str]) -> Results:
    """Read a results file. Raises UserError for any unknown key or wrong type."""
    document = document_of(load_file(path, "results file"))
    where = printable(path)
    if not document.is_results:
        raise UserError(
            "is a list of sizes and not a results file",
            where=where,
            accepted="a file that tune_gemm.py wrote, with format_version, header and configs",
        )
    if not isinstance(document.earlier_headers, list):
        raise UserError(
            f"earlier_headers is {show(document.earlier_headers)}", where=where, accepted="a list of headers"
        )
    earlier = tuple(_header(one, f"{where}, earlier_headers {i}") for i, one in enumerate(document.earlier_headers, 1))
    return Results(_header(document.header, f"{where}, header"), document.rows, document.failures, earlier)


def _header(raw: object, where: str) -> dict[str, str | int]:
    if isinstance(raw, dict):  # earlier versions did not write every field
        blank = {field.name: 0 if field.type == "Count" else "" for field in dataclasses.fields(Header)}
        record_of(Header, {**blank, **raw}, where)
        return dict(raw)
    raise UserError(f"is {show(raw)} and not a mapping", where=where, accepted="the fields of a header")


def run_reference(results_path: str | os.PathLike[str], folder: Path) -> str:
    """The run's folder for a results file's header: relative if it is at or below the file's folder, so that both can
    be moved together; else absolute."""
    home, folder = Path(results_path).parent.resolve(), folder.resolve()
    return (folder.relative_to(home) if folder.is_relative_to(home) else folder).as_posix()


def run_folder(results_path: str | os.PathLike[str], header: Mapping[str, str | int]) -> Path | None:
    """The folder of the run that wrote a results file, which may not exist any more; None if the header has none."""
    named = header.get("run")
    return Path(results_path).parent / str(named) if named else None


def size_keys(problem: Problem) -> dict[str, Any]:
    """The keys of a row that identify its problem. Raises ValueError for a problem that could not be read back."""
    return workload_of(problem.kind).row(problem)


def choice_row(choice: Choice) -> dict[str, Any]:
    """The row of a choice: problem, configuration and results. The row of a predicted choice has no measured fields."""
    if choice.source not in SOURCES:
        raise ValueError(f"source {choice.source!r} is not one of {SOURCES}")
    if not 0 < choice.median_us < math.inf:
        raise ValueError(f"{choice.problem.key}: a time of {choice.median_us} us")
    predicted, compared = choice.source == "predicted", choice.verified is not Verified.FALSE
    facts: dict[str, Any] = {
        "name": choice.config.name,
        "source": choice.source,
        "verified": choice.verified.scalar,
        "predicted_us": _decimals(choice.median_us, 3) if predicted else None,
        "median_us": _decimals(choice.median_us, 3),
        "p20_us": _decimals(choice.p20_us, 3),
        "p80_us": _decimals(choice.p80_us, 3),
        "summed_us": _decimals(choice.summed_us, 3),
        "samples": int(choice.num_samples),
        "processes": choice.processes,
        "process_spread_pct": _decimals(choice.process_spread_pct, 2),
        "tflops": _digits(choice.tflops, 4),
        "roofline_pct": _decimals(choice.roofline_pct, 2),
        "vendor_us": _decimals(choice.vendor_us, 3),
        "vendor_summed_us": _decimals(choice.vendor_summed_us, 3),
        "vendor_ratio": _decimals(choice.vendor_ratio, 3),
        "max_abs_error": _digits(choice.max_abs_error, 3) if compared else None,
        "error_over_bound": _digits(choice.error_over_bound, 3) if compared else None,
        "runner_up": choice.runner_up or None,
        "gap_pct": _decimals(choice.gap_pct, 2),
        "tie": bool(choice.tie),
        "derived": dict(choice.derived) or None,
        "overruled": "; ".join(f"{name}: {why}" for name, why in choice.overruled) or None,
    }
    unknown = TIMED_FACTS if predicted else ()
    row = {
        **size_keys(choice.problem),
        "family": choice.config.family,
        **language_of_row(choice),
        **{key: plain(value) for key, value in choice.config.options().items()},
        **{key: value for key, value in facts.items() if key not in unknown},
        **served_rows(choice.served, predicted=predicted),
        **substitute_row(choice.substitute),
    }
    return {key: value for key, value in row.items() if value is not None}


def choice_of(row: Row, overruled: Mapping[str, str]) -> Choice | None:
    """The choice of which ``choice_row`` made a row, as far as the row has it; None for a row without configuration,
    source or time. overruled: by name, which a row has in one text."""
    facts, source = row.facts, str(row.facts.get("source", ""))
    median_us = facts.get("predicted_us" if source == "predicted" else "median_us")
    if row.config is None or not source or not median_us:
        return None
    return Choice(
        problem=row.problem,
        config=row.config,
        source=source,
        verified=row.verified,
        median_us=median_us,
        p20_us=facts.get("p20_us"),
        p80_us=facts.get("p80_us"),
        num_samples=facts.get("samples", 0),
        vendor_us=facts.get("vendor_us"),
        max_abs_error=facts.get("max_abs_error", math.nan),
        error_over_bound=facts.get("error_over_bound", math.nan),
        runner_up=facts.get("runner_up", ""),
        gap_pct=facts.get("gap_pct"),
        tie=facts.get("tie", False),
        roofline_pct=facts.get("roofline_pct", math.nan),
        processes=facts.get("processes"),
        process_spread_pct=facts.get("process_spread_pct"),
        served=tuple(one for one in row.served if not one.kept_from),
        overruled=tuple(overruled.items()),
        derived=tuple(facts.get("derived", {}).items()),
        substitute=row.substitute,
        summed_us=facts.get("summed_us"),
        vendor_summed_us=facts.get("vendor_summed_us"),
    )


def language_of_row(choice: Choice) -> dict[str, str]:
    """The language of the configuration's kernel, if it is not that of the kind of problem."""
    workload = workload_of(choice.problem.kind)
    language = workload.language_for(choice.config.family)
    return {"language": language} if language != workload.language else {}


def plain(value: Any) -> Any:
    """A field's value for YAML; numpy integers become Python integers."""
    return list(value) if isinstance(value, tuple) else value if isinstance(value, (bool, str)) else int(value)


def _decimals(value: float | None, places: int) -> float | None:
    return None if value is None or math.isnan(value) else round(float(value), places)


def _digits(value: float | None, digits: int) -> float | None:
    return None if value is None or math.isnan(value) else float(f"{float(value):.{digits}g}")

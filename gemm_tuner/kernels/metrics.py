"""Extracts the metric of one program run from its output."""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gemm_tuner.kernels.program_spec import CSV_COLUMN, JSON, MS_IN, REGEX, Metric
from gemm_tuner.system.documents import show

# Columns of Modular's Bench; newer ones report seconds.
NAME, ITERS = "name", "iters"
MET = re.compile(r"met \((ns|us|ms|s)\)")
LAST_CHARS = 300


class NoMetric(Exception):
    """The output contains no usable metric; the text says why."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The metric of a run. value: in ms for a time, else in the metric's unit. case: the program's name for the case;
    "" if it prints none.

    further: the other columns that it printed.
    """

    value: float
    case: str = ""
    iters: str = ""
    further: Mapping[str, str] = field(default_factory=dict)


def read(metric: Metric, stdout: str, stderr: str = "") -> Reading:
    """The metric of a run. Raises NoMetric for none, for several, and for a value that is not a finite number."""
    if metric.kind == REGEX:
        return Reading(_number(_matched(metric.pattern, stdout, stderr), metric, metric.unit))
    if metric.kind == JSON:
        return _from_json(metric, stdout)
    rows = _tables(stdout, metric)
    if not rows:
        table = "table with a column 'met (ms)', and the spec has no metric"
        wanted = f"CSV column {metric.pattern!r}" if metric.kind == CSV_COLUMN else table
        raise NoMetric(f"it prints no {wanted}{_instead(stdout or stderr)}")
    if len(rows) > 1:
        names = ", ".join(row.get(NAME, "") for row in rows[:2]).strip(", ")
        raise NoMetric(f"it reports {len(rows)} cases and not exactly one{': ' + names if names else ''}")
    return _from_row(rows[0], metric)


def _matched(pattern: str, stdout: str, stderr: str) -> str:
    found = re.findall(pattern, stdout) or re.findall(pattern, stderr)
    if not found:
        raise NoMetric(f"the regex {pattern!r} matches nothing{_instead(stdout or stderr)}")
    if len(found) > 1:
        raise NoMetric(f"the regex {pattern!r} matches {len(found)} times and not once")
    return str(found[0])


def _from_json(metric: Metric, stdout: str) -> Reading:
    """The number at a dotted path in the JSON document, or in the last line that is a JSON document."""
    document = _document(stdout)
    value: Any = document
    for key in metric.pattern.split("."):
        if isinstance(value, list) and key.isdigit() and int(key) < len(value):
            value = value[int(key)]
        elif isinstance(value, dict) and key in value:
            value = value[key]
        else:
            raise NoMetric(f"the JSON that it prints has no {metric.pattern}")
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise NoMetric(f"{metric.pattern} of its JSON is {show(value)}")
    case = document.get(NAME, "") if isinstance(document, dict) else ""
    return Reading(_number(str(value), metric, metric.unit), case if isinstance(case, str) else "")


def _document(stdout: str) -> Any:
    lines = [line for line in stdout.splitlines() if line.lstrip().startswith(("{", "["))]
    for text in (stdout, *reversed(lines)):
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            continue
    raise NoMetric(f"it prints no JSON{_instead(stdout)}")


def _tables(stdout: str, metric: Metric) -> list[dict[str, str]]:
    """The rows below the first heading that contains the metric, in a table with bars or commas."""
    heading: list[str] = []
    rows: list[dict[str, str]] = []
    for line in stdout.splitlines():
        cells = _cells(line)
        if not heading:
            heading = cells if _metric_column(cells, metric) else []
        elif len(cells) != len(heading):
            if rows:
                break
        elif cells != heading and not all(set(cell) <= set("-: ") for cell in cells):
            rows.append(dict(zip(heading, cells, strict=True)))
    return rows


def _cells(line: str) -> list[str]:
    line = line.strip()
    if line.startswith("|"):
        return [cell.strip() for cell in line.strip("|").split("|")]
    try:
        return [cell.strip() for cell in next(csv.reader([line], skipinitialspace=True), [])]
    except csv.Error:
        return []


def _metric_column(heading: Sequence[str], metric: Metric) -> str:
    if metric.kind == CSV_COLUMN:
        return metric.pattern if metric.pattern in heading else ""
    return next((one for one in heading if MET.fullmatch(one)), "")


def _from_row(row: Mapping[str, str], metric: Metric) -> Reading:
    column = _metric_column(list(row), metric)
    unit = found[1] if metric.kind != CSV_COLUMN and (found := MET.fullmatch(column)) else metric.unit
    further = {name: cell for name, cell in row.items() if name and name not in (NAME, ITERS, column)}
    return Reading(_number(row[column], metric, unit), row.get(NAME, ""), row.get(ITERS, ""), further)


def _number(text: str, metric: Metric, unit: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise NoMetric(f"its metric is {show(text)} and no number") from None
    if not math.isfinite(value):
        raise NoMetric(f"its metric is {text.strip()[:60]} and no finite number")
    if metric.is_time:
        if value <= 0:
            raise NoMetric(f"its time is {text.strip()[:60]} {unit} and not above 0")
        return value * MS_IN[unit]
    return value


def _instead(text: str) -> str:
    """The end of the program's output, for a message."""
    words = " ".join(text.split())
    return f", but: {words[-LAST_CHARS:]}" if words else "; it prints nothing"

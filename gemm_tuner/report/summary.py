"""A report as JSON: the summary for ``--json`` and the page's charts, and the tables of the page.

3000 rows of 30 columns take about 200 kB; page/data.js unpacks them.
"""

from __future__ import annotations

import itertools
import math
import string
from collections.abc import Sequence
from typing import Any

import pandas as pd

from gemm_tuner.core.choice import ServedChoice
from gemm_tuner.decide.estimates import quantiles_us
from gemm_tuner.launch.plan import VENDOR
from gemm_tuner.report.data import Report, ReportedSize
from gemm_tuner.report.other_rows import OtherRow
from gemm_tuner.store.run_record import Final

SUMMARY_VERSION = 1
# A column with few distinct values is stored as one character per row.
CODES = string.digits + string.ascii_letters
# Longer texts are truncated, because every configuration can have a compiler message of a page.
MAX_TEXT = 400
SHARED_DIGITS = 2


def of_report(report: Report) -> dict[str, Any]:
    """The summary of the run and of each size. Times are in microseconds unless a key has another unit."""
    record = report.record
    return {
        "summary_version": SUMMARY_VERSION,
        "title": report.title,
        "folder": report.folder,
        "source": report.source,
        "command": list(record.command),
        "seconds": record.seconds,
        "results_file": record.results_file,
        "num_sizes": len(report.sizes),
        "num_chosen": report.num_chosen,
        "num_unchecked": report.num_unchecked,
        "vendor_ratio": report.vendor_ratio,
        "counts": report.counts,
        "funnel": report.funnel,
        "roofs_tflops": report.roofs,
        "dram_gbps": report.dram_gbps,
        "stages_s": record.stages,
        "outside_stages_s": report.outside_stages_s,
        "facts": record.facts,
        "header": record.header,
        "device": record.device,
        "notes": record.notes,
        "sizes": [of_size(size) for size in report.sizes],
        "other_rows": [of_other(one) for one in report.others],
    }


def of_size(size: ReportedSize) -> dict[str, Any]:
    record = size.record
    return {
        "key": size.key,
        "label": size.label,
        "problem": size.problem.to_dict(),
        "rate_key": size.problem.rate_key,
        "total": record.total,
        "kept": size.kept,
        "timed": size.timed,
        "has_table": size.table is not None,
        "funnel": list(record.funnel),
        "counts": record.counts,
        "chosen": record.chosen,
        "verified": record.verified.value if record.verified else None,
        "failure": record.failure,
        "served": {one.consumer: {**record.served[one.consumer], **of_served(size, one)} for one in size.served},
        "overruled": record.overruled,
        "time_us": size.time_us,
        "time_source": size.time_source,
        "tflops": size.tflops,
        "intensity": size.intensity,
        "roofline_us": record.roofline_us,
        "roofline_tflops": size.problem.flops / record.roofline_us / 1e6 if record.roofline_us else None,
        "roofline_pct": size.roofline_pct,
        "vendor_us": size.vendor.time_us if size.vendor else None,
        "vendor_tflops": size.problem.flops / size.vendor.time_us / 1e6 if size.vendor else None,
        "vendor_ratio": size.vendor_ratio,
        "vendor_ratio_interval": size.vendor_ratio_interval,
        "finals": [of_final(one) for one in size.finalists],
    }


def of_served(size: ReportedSize, one: ServedChoice) -> dict[str, Any]:
    return {
        "name": one.config.name,
        "time_us": one.time_us,
        "default_ratio": one.default_ratio,
        "over_best": size.over_best(one),
    }


def of_other(one: OtherRow) -> dict[str, Any]:
    return {
        "key": one.key,
        "problem": one.problem.to_dict(),
        "name": one.config,
        "source": one.source,
        "time_us": one.time_us,
        "verified": one.verified.value if one.config else None,
        "run": one.run,
        "failure": one.failure,
    }


def of_final(one: Final) -> dict[str, Any]:
    p20_us, p80_us = quantiles_us(one.samples_us)
    return {
        "name": one.name,
        "median_us": one.time_us,
        "p20_us": p20_us,
        "p80_us": p80_us,
        "min_us": min(one.samples_us),
        "interval_us": one.interval_us,
        "samples_us": one.samples_us,
        "is_vendor": one.name == VENDOR,
    }


def finite(value: Any) -> Any:
    """The value with NaN and infinities, which JSON does not have, replaced by None."""
    if isinstance(value, dict):
        return {str(key): finite(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(one) for one in value]
    return None if isinstance(value, float) and value - value != 0 else value


def pack(table: pd.DataFrame) -> dict[str, Any]:
    """A compact form of a table: front-coded names, and ``pack_column`` of every other column that has a value."""
    names = [str(name) for name in table["name"]] if "name" in table else [""] * len(table)
    columns = {str(name): pack_column(_plain(table[name])) for name in table.columns if name != "name"}
    blank = {"all": None}
    return {
        "rows": len(table),
        "names": pack_names(names),
        "columns": {name: packed for name, packed in columns.items() if packed != blank},
    }


def pack_names(names: Sequence[str]) -> list[str]:
    """Front coding: each name as two hex digits (length of the prefix shared with the previous name) and the rest."""
    packed, before = [], ""
    for name in names:
        alike = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(before, name, strict=False))
        shared = min(sum(1 for _ in alike), 16**SHARED_DIGITS - 1)
        packed.append(f"{shared:0{SHARED_DIGITS}x}{name[shared:]}")
        before = name
    return packed


def pack_column(values: Sequence[Any]) -> dict[str, Any]:
    """The smallest of four forms:

    {"all": v}                      the same value in every row
    {"rows": [..], "values": [..]}  only the rows that have a value
    {"of": [..], "at": ".."}        row i has of[CODES.index(at[i])]
    {"values": [..]}                one value per row
    """
    distinct = list(dict.fromkeys(values))
    if len(distinct) <= 1:
        return {"all": distinct[0] if distinct else None}
    rows = [row for row, value in enumerate(values) if value is not None]
    if len(rows) * 4 < len(values):
        return {"rows": rows, "values": [values[row] for row in rows]}
    if len(distinct) <= len(CODES):
        code = dict(zip(distinct, CODES, strict=False))
        return {"of": distinct, "at": "".join(code[value] for value in values)}
    return {"values": list(values)}


def _plain(column: pd.Series) -> list[Any]:
    """The values for JSON: integral numbers as int, NaN and infinities as None."""
    return [_scalar(value) for value in column.tolist()]


def _scalar(value: Any) -> Any:
    if isinstance(value, str):
        return value if len(value) <= MAX_TEXT else value[: MAX_TEXT - 1] + "…"
    if value is None or value is pd.NA or not math.isfinite(value):
        return None
    if isinstance(value, bool):
        return value
    return int(value) if value == int(value) else round(float(value), 4)

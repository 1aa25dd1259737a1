"""A report's essentials in the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gemm_tuner.report.data import TIME_COLUMNS, Interval, Report, SizeView, fastest
from gemm_tuner.report.numbers import MISSING, number, whole, words


def show(report: Report, console: Console, top: int) -> None:
    """Prints the run: sizes, rules, statuses, the first ``top`` configurations of each size, stages, environment."""
    record = report.record
    _line(console, report.title, style="bold")
    done = f"{report.num_chosen} of {len(report.sizes)} sizes with a configuration in {number(record.seconds)} s"
    ratio = f"; vendor's time / ours, geometric mean: {number(report.vendor_ratio)}" if report.vendor_ratio else ""
    _line(console, f"{done}; times are {report.source or 'of an unknown source'}{ratio}")
    _sizes(console, report)
    _funnel(console, report)
    _pairs(console, "Statuses", "status", "configurations", report.counts)
    for size in report.sizes:
        _finals(console, size)
        _top(console, size, top)
    _pairs(console, "Time per stage", "stage", "s", {name: number(s, 3) for name, s in record.stages.items()})
    _line(console, "command: " + " ".join(record.command))
    for title, mapping in (("Versions and settings", record.header), ("Counts", record.facts), ("Notes", record.notes),
                           ("Device", record.device)):  # fmt: skip
        if mapping:
            _pairs(console, title, "", "", mapping, justify="left")


def _sizes(console: Console, report: Report) -> None:
    time = "predicted us" if report.source == "predicted" else "us"
    table = _table("Sizes", ("size", "configuration"), (time, "95 % interval", "TFLOP/s", "of roofline", "vendor us",
                                                        "vendor / ours", "timed", "kept", "space"))  # fmt: skip
    for size in report.sizes:
        record = size.record
        chosen = _cell(record.chosen) if record.chosen else Text(_clean(record.failure or "none"), style="red")
        share = number(size.roofline_pct, 3) + (" %" if size.roofline_pct else "")
        vendor = size.vendor.median_us if size.vendor else None
        cells = (number(size.time_us), _interval(size.ours.interval_us if size.ours else None), number(size.tflops),
                 share, number(vendor), number(size.vendor_ratio), whole(size.timed), whole(size.kept),
                 whole(record.total))  # fmt: skip
        table.add_row(_cell(size.label), chosen, *cells)
    console.print(table)


def _funnel(console: Console, report: Report) -> None:
    table = _table("Rules, all sizes", ("rule",), ("cut",))
    table.add_column("kind")
    table.add_column("why", overflow="fold")
    for rule in report.funnel:
        table.add_row(_cell(rule["rule"]), whole(rule["cut"]), _cell(rule["kind"]), _cell(rule["why"]))
    console.print(table)


def _finals(console: Console, size: SizeView) -> None:
    if not size.contenders:
        return
    table = _table(f"{size.key}: finals", ("contender",), ("median us", "95 % interval", "p20", "p80", "samples"))
    for one in size.contenders:
        numbers = (number(one.median_us), _interval(one.interval_us), number(one.p20_us), number(one.p80_us))
        name = Text(_clean(one.name), style="bold" if one.name == size.record.chosen else "")
        table.add_row(name, *numbers, str(len(one.samples_us)))
    console.print(table)


def _top(console: Console, size: SizeView, count: int) -> None:
    rows = fastest(size, count)
    if not rows:
        return
    table = _table(
        f"{size.key}: fastest configurations", ("name", "status"), ("screen us", "finals us", "predicted us")
    )
    for row in rows:
        times = (number(row.get(column)) for column in (*TIME_COLUMNS, "predicted_us"))
        table.add_row(_cell(row.get("name")), _cell(row.get("status")), *times)
    console.print(table)


def _pairs(
    console: Console, title: str, left: str, right: str, mapping: Mapping[str, Any], justify: str = "right"
) -> None:
    table = _table(title, (left,), (right,)) if justify == "right" else _table(title, (left, right), ())
    table.show_header = bool(left)
    for key, value in mapping.items():
        table.add_row(_cell(key), _cell(whole(value) if isinstance(value, int) and justify == "right" else value))
    console.print(table)


def _table(title: str, texts: tuple[str, ...], numbers: tuple[str, ...]) -> Table:
    table = Table(title=Text(_clean(title), style="bold"), title_justify="left", box=None, pad_edge=False)
    for name in texts:
        table.add_column(name, overflow="fold")
    for name in numbers:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _interval(interval: Interval | None) -> str:
    return f"{number(interval[0])} to {number(interval[1])}" if interval else MISSING


def _cell(value: Any) -> Text:
    """What a file says, as text: no markup of rich's, no control characters of a terminal's."""
    return Text(_clean(words(value)))


def _clean(text: str) -> str:
    return "".join(one if one.isprintable() else " " for one in text)


def _line(console: Console, text: str, style: str = "") -> None:
    console.print(Text(_clean(text), style=style), soft_wrap=True)

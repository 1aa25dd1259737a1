"""Prints a report in the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from gemm_tuner.core.labels import label
from gemm_tuner.core.records import Status, Verified
from gemm_tuner.decide.estimates import quantiles_us
from gemm_tuner.pipeline.show import config_name, how_checked
from gemm_tuner.report.data import TIME_COLUMNS, Interval, Report, ReportedSize, fastest
from gemm_tuner.report.numbers import MISSING, number, whole, words
from gemm_tuner.system.terminal_table import Column, print_line, print_table, printable

WHERE_ALL_IS = "the page, or --text into a pipe,"


def show(report: Report, console: Console, top: int) -> None:
    """Prints the run: sizes, rules, statuses, the ``top`` fastest configurations of each size, stages, environment."""
    record = report.record
    _line(console, report.title, style="bold")
    done = f"{report.num_chosen} of {len(report.sizes)} sizes with a configuration in {number(record.seconds)} s"
    done += f"; {report.num_unchecked} of them not checked" if report.num_unchecked else ""
    done += f"; {others_text(report)}" if report.others else ""
    ratio = f"; vendor's time / ours, geometric mean: {number(report.vendor_ratio)}" if report.vendor_ratio else ""
    _line(console, f"{done}; times are {report.source or 'of an unknown source'}{ratio}")
    _sizes(console, report)
    _others(console, report)
    _overruled(console, report)
    _served(console, report)
    _funnel(console, report)
    _pairs(console, "Statuses", "status", "configurations", report.counts)
    for size in report.sizes:
        _finals(console, size)
        _top(console, size, top)
    times = {**report.stages, "in all": record.seconds} if report.stages else {}
    _pairs(console, "Time per stage", "stage", "s", {name: number(s, 3) for name, s in times.items()})
    _line(console, "command: " + " ".join(record.command))
    for title, mapping in (("Versions and settings", record.header), ("Counts", record.facts), ("Notes", report.notes),
                           ("Device", record.device)):  # fmt: skip
        known = {key: value for key, value in mapping.items() if words(value) != MISSING}
        _pairs(console, title, "", "", known)


def _served(console: Console, report: Report) -> None:
    """Prints one row per size and server: the best configuration, the default's time divided by its time, and its time
    divided by the winner's."""
    columns = (
        Column("size", wraps=True),
        Column("for"),
        Column("predicted us" if report.source == "predicted" else "us", is_number=True),
        Column("default/\nus", is_number=True),
        Column("us/\nbest", is_number=True, rank=1),
        Column("default us", is_number=True, rank=3),
        Column("checked", rank=2),
        Column("configuration", wraps=True),
    )
    rows = [
        [
            _name(console, size), one.consumer, _number(one.time_us), _number(one.default_ratio),
            _number(size.over_best(one)), _number(one.default_us), how_checked(console, one.verified),
            config_name(console, size.problem, one.config.name),
        ]
        for size in report.sizes
        for one in size.served
    ]  # fmt: skip
    if rows:
        _say_left_out(console, _table(console, "Served", columns, rows))


def _overruled(console: Console, report: Report) -> None:
    """Prints one line per finalist that ranked before the chosen one and was rejected."""
    for size in report.sizes:
        for name, why in size.record.overruled.items():
            _line(console, f"{_title(console, size)}: passed over {config_name(console, size.problem, name)}: {why}")


def _sizes(console: Console, report: Report) -> None:
    columns = (
        Column("size", wraps=True),
        Column("predicted us" if report.source == "predicted" else "us", is_number=True),
        Column("95 % interval", is_number=True, rank=2),
        Column("TFLOP/s", is_number=True, rank=3),
        Column("of roof", is_number=True, rank=4),
        Column("vendor us", is_number=True, rank=5),
        Column("vendor / ours", is_number=True, rank=1),
        Column("timed", is_number=True, rank=6),
        Column("kept", is_number=True, rank=7),
        Column("space", is_number=True, rank=8),
        Column("checked"),
        Column("configuration", wraps=True),
    )
    rows: list[list[str | Text]] = []
    for size in report.sizes:
        record = size.record
        vendor = size.vendor.time_us if size.vendor else None
        cells = (_number(size.time_us), _interval(size.ours.interval_us if size.ours else None), _number(size.tflops),
                 f"{number(size.roofline_pct, 3)} %" if size.roofline_pct else "", _number(vendor),
                 _number(size.vendor_ratio), whole(size.timed) if size.timed else "", whole(size.kept),
                 whole(record.total), how_checked(console, record.verified or Verified.TRUE))  # fmt: skip
        failure = Text(record.failure or "none", style="red")
        rows.append([_name(console, size), *cells, config_name(console, size.problem, record.chosen) or failure])
    title = f"Sizes: {report.common}" if report.common and console.is_terminal else "Sizes"
    _say_left_out(console, _table(console, title, columns, rows))
    for part, meaning in report.legend.items():
        _line(console, f"  {part}: {meaning}", style="dim")
    for text in report.config_legends if console.is_terminal else ():
        _line(console, f"  {text}", style="dim")


def others_text(report: Report) -> str:
    """How many rows of the results file are not of this run."""
    count = len(report.others)
    return f"the file has {count} more row{'s' if count > 1 else ''}, of other runs"


def _others(console: Console, report: Report) -> None:
    """Prints the rows of the results file that are not of this run."""
    columns = (
        Column("size", wraps=True),
        Column("us", is_number=True),
        Column("source"),
        Column("checked", rank=2),
        Column("run", rank=1, wraps=True),
        Column("configuration", wraps=True),
    )
    rows: list[list[str | Text]] = [
        [
            one.label if console.is_terminal else one.key, _number(one.time_us), one.source,
            how_checked(console, one.verified), one.run,
            config_name(console, one.problem, one.config) or Text(one.failure, style="red"),
        ]
        for one in report.others
    ]  # fmt: skip
    if rows:
        _say_left_out(console, _table(console, "Rows of other runs in the results file", columns, rows))


def _name(console: Console, size: ReportedSize) -> str:
    return size.label if console.is_terminal else size.key


def _title(console: Console, size: ReportedSize) -> str:
    return label(size.problem) if console.is_terminal else size.key


def _funnel(console: Console, report: Report) -> None:
    columns = (
        Column("rule"),
        Column("cut", is_number=True),
        Column("kind", rank=1),
        Column("why", rank=2),
    )
    rows = [
        (words(rule["rule"]), whole(rule["cut"]), words(rule["kind"]), words(rule["why"])) for rule in report.funnel
    ]
    if rows:
        _say_left_out(console, _table(console, "Rules, all sizes", columns, rows))


def _finals(console: Console, size: ReportedSize) -> None:
    if not size.finalists:
        return
    columns = (
        Column("contender", wraps=True),
        Column("median us", is_number=True),
        Column("95 % interval", is_number=True, rank=1),
        Column("p20", is_number=True, rank=2),
        Column("p80", is_number=True, rank=2),
        Column("samples", is_number=True, rank=3),
    )
    rows: list[list[str | Text]] = []
    for one in size.finalists:
        numbers = (number(one.time_us), _interval(one.interval_us), *map(number, quantiles_us(one.samples_us)))
        style = "bold" if one.name == size.record.chosen else ""
        rows.append(
            [Text(config_name(console, size.problem, one.name), style=style), *numbers, str(len(one.samples_us))]
        )
    _table(console, f"{_title(console, size)}: finals", columns, rows)


def _top(console: Console, size: ReportedSize, count: int) -> None:
    rows = fastest(size, count)
    if not rows:
        return
    titles = ("screen us", "finals us", "predicted us")
    times = (Column(title, is_number=True) for title in titles)
    columns = (Column("name", wraps=True), Column("status"), *times, Column("why", rank=1, wraps=True))
    cells = [
        (
            config_name(console, size.problem, words(row.get("name"))),
            words(row.get("status")),
            *(_number(row.get(column)) for column in (*TIME_COLUMNS, "predicted_us")),
            _why(row),
        )
        for row in rows
    ]
    left_out = _table(console, f"{_title(console, size)}: fastest configurations", columns, cells)
    _say_left_out(console, left_out)


def _why(row: Mapping[Any, Any]) -> str:
    """Why a configuration did not end well: what cut it, or its message; "" for one that did."""
    if row.get("status") == Status.OK.value:
        return ""
    known = (row.get("rule"), row.get("message"))
    return next((" ".join(text.split()) for text in known if isinstance(text, str)), "")


def _pairs(console: Console, title: str, left: str, right: str, mapping: Mapping[str, Any]) -> None:
    """Prints a mapping as two columns. If the heading ``left`` is not empty the values are counts, else texts."""
    columns = (Column(left, wraps=True), Column(right, is_number=bool(left), wraps=not left))
    rows = [
        (words(key), whole(value) if isinstance(value, int) and left else words(value))
        for key, value in mapping.items()
    ]
    if rows:
        _table(console, title, columns, rows)


def _table(
    console: Console, title: str, columns: Sequence[Column], rows: Sequence[Sequence[str | Text]]
) -> tuple[str, ...]:
    console.print()
    return print_table(console, title, columns, rows)


def _say_left_out(console: Console, titles: tuple[str, ...]) -> None:
    if titles:
        _line(console, f"  no room for {', '.join(titles)}; {WHERE_ALL_IS} shows all", style="dim")


def _number(value: float | None) -> str:
    """A number as a table cell; "" for None."""
    return "" if value is None or value != value else number(value)


def _interval(interval: Interval | None) -> str:
    return f"{number(interval[0])} to {number(interval[1])}" if interval else ""


def _line(console: Console, text: str, style: str = "") -> None:
    print_line(console, printable(text), style)

"""Renders a report as one HTML file without external resources.

Text from the run's files is untrusted. Jinja escapes it in the markup; scripts receive it as JSON with ``<`` escaped,
and insert it as text only. A content security policy forbids other scripts and loading of resources.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from gemm_tuner.consumers.consumer import STAND_IN
from gemm_tuner.report import summary
from gemm_tuner.report.data import TIME_COLUMNS, Report
from gemm_tuner.report.numbers import number, whole, words

PAGE = Path(__file__).parent / "page"
CHARTS = "chart.umd.min.js"  # Chart.js, https://www.chartjs.org, as published on npm
SCRIPTS = (CHARTS, "data.js", "tables.js", "charts.js", "page.js")


def render(report: Report) -> str:
    """The page's text."""
    scripts = [_asset(name) for name in SCRIPTS]
    style = _asset("report.css")
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(PAGE),
        undefined=jinja2.StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(number=number, whole=whole, words=words)
    document = {**summary.of_report(report), "config_fields": report.config_fields, "time_columns": TIME_COLUMNS}
    return environment.get_template("report.html.j2").render(
        report=report,
        stand_in=STAND_IN,
        style=Markup(style),
        scripts=[Markup(script) for script in scripts],
        style_hash=_hash(style),
        script_hashes=[_hash(script) for script in scripts],
        summary=_json(document),
        tables=[_json(summary.pack(size.table)) if size.table is not None else "" for size in report.sizes],
    )


@functools.lru_cache(maxsize=8)
def _asset(name: str) -> str:
    """A file of the page, without the sourceMappingURL line, which makes developer tools access the network."""
    text = (PAGE / name).read_text(encoding="utf-8")
    return "\n".join(line for line in text.splitlines() if not line.startswith("//# sourceMappingURL"))


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _json(value: Any) -> Markup:
    """JSON for a script element, escaped so that it cannot end the element or open a comment."""
    text = json.dumps(summary.finite(value), separators=(",", ":"), allow_nan=False, default=str)
    return Markup(text.replace("&", r"\u0026").replace("<", r"\u003c").replace(">", r"\u003e"))

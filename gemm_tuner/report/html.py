"""A report as one HTML file that asks for nothing from outside: markup, style, scripts and data in it.

Whatever comes from the run's files is data. In the markup Jinja escapes it; to the scripts it goes as JSON in which
``<`` is spelt as an escape, and they put it on the page as text only. A content security policy lets no other script
run and nothing be loaded.
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

from gemm_tuner.gemm.config import CONFIG_FIELDS
from gemm_tuner.report import packing, summary
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
    document = {**summary.of_report(report), "config_fields": CONFIG_FIELDS, "time_columns": TIME_COLUMNS}
    return environment.get_template("report.html.j2").render(
        report=report,
        style=Markup(style),
        scripts=[Markup(script) for script in scripts],
        style_hash=_hash(style),
        script_hashes=[_hash(script) for script in scripts],
        summary=_json(document),
        tables=[_json(packing.pack(size.table)) if size.table is not None else "" for size in report.sizes],
    )


@functools.lru_cache(maxsize=8)
def _asset(name: str) -> str:
    """A part of the page, less the pointer to a source map, which a browser's tools would ask the network for."""
    text = (PAGE / name).read_text(encoding="utf-8")
    return "\n".join(line for line in text.splitlines() if not line.startswith("//# sourceMappingURL"))


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _json(value: Any) -> Markup:
    """JSON that cannot end the script element it stands in, nor open a comment there."""
    text = json.dumps(finite(value), separators=(",", ":"), allow_nan=False, default=str)
    return Markup(text.replace("&", r"\u0026").replace("<", r"\u003c").replace(">", r"\u003e"))


def finite(value: Any) -> Any:
    """The same with None in place of numbers that JSON has not."""
    if isinstance(value, dict):
        return {str(key): finite(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(one) for one in value]
    return None if isinstance(value, float) and value - value != 0 else value

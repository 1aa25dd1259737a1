"""Writes the results of a spec: the table as CSV, and the best combination as a spec file."""

from __future__ import annotations

import contextlib
import csv
import io
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from gemm_tuner.core.errors import UserError
from gemm_tuner.kernels.metrics import ITERS, NAME
from gemm_tuner.pipeline.spec_rows import Row, SpecRun
from gemm_tuner.system.documents import dump_yaml, show, write_text_atomically

MESH_IDX = "mesh_idx"
CSV, YAML = (".csv",), (".yaml", ".yml")


def further_names(rows: Iterable[Row]) -> list[str]:
    names: dict[str, None] = {}
    for row in rows:
        if row.outcome and row.outcome.reading:
            names.update(dict.fromkeys(row.outcome.reading.further))
    return list(names)


def shown_name(row: Row) -> str:
    """The name that the program printed for the row, else its parameters."""
    case = row.outcome.reading.case if row.outcome and row.outcome.reading else ""
    return case or row.instance.name


def best_spec(run: SpecRun, folder: Path) -> str:
    """The best row as the text of a spec file in ``folder``: the same document with one value per parameter."""
    best, spec = run.ranked[0], run.spec
    document: dict[str, Any] = {
        "name": spec.name,
        **{k: v for k, v in spec.document.items() if k not in ("name", "best")},
    }
    marks = {param.name: "$" * param.at_run_time for param in spec.params}
    document["params"] = {f"{marks[name]}{name}": value for name, value in best.instance.values.items()}
    if spec.cwd != folder.resolve():
        document["cwd"] = os.path.relpath(spec.cwd, folder.resolve())
    elif spec.path.resolve().parent != folder.resolve():
        document.pop("cwd", None)
    reading = best.outcome.reading if best.outcome else None
    assert reading is not None
    found: dict[str, Any] = {"met": reading.value, "unit": spec.metric.shown_unit, "runs": len(best.values)}
    if reading.iters:
        found["iters"] = _number(reading.iters)
    further = {name: _number(text) for name, text in reading.further.items()}
    document["best"] = {**found, **further, "tie": bool(run.ties)}
    return dump_yaml(_plain(document))


def _number(text: str) -> int | float | str:
    """A cell of a program's table, as a number if it is one."""
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return text


def _plain(value: Any) -> Any:
    """Converts mappings and lists of the YAML reader to plain ones for the writer."""
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list) else value


def csv_table(run: SpecRun, *, tune: bool) -> str:
    """All rows, including those without a value, with status and reason; sorted with ``tune``."""
    ranked = run.ranked
    rows = [*ranked, *(row for row in run.rows if row.value is None)] if tune else run.rows
    further, params = further_names(ranked), [param.name for param in run.spec.params]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    titles = [MESH_IDX, NAME, run.spec.metric.title, ITERS, *further, "runs", "status", "reason"]
    writer.writerow([*titles, *(name if name not in titles else f"param {name}" for name in params)])
    for row in rows:
        reading = row.outcome.reading if row.outcome else None
        writer.writerow([
            row.instance.mesh_idx, shown_name(row),
            reading.value if reading else "", reading.iters if reading else "",
            *(reading.further.get(name, "") if reading else "" for name in further),
            len(row.values), row.status, row.outcome.reason if row.outcome else "",
            *(row.instance.values[name] for name in params),
        ])  # fmt: skip
    return text.getvalue()


def check_output(path: Path | None, spec_path: Path, *, tune: bool) -> None:
    """Raises UserError for an unsupported file name ending, before anything is run."""
    if path is None:
        return
    where = "--output"
    if path.suffix not in CSV + YAML:
        accepted = "FILE.csv, the table, or FILE.yaml, the best spec"
        raise UserError(f"{show(str(path))} says no kind of file", where=where, accepted=accepted)
    if path.suffix in YAML and not tune:
        raise UserError("a best spec is found by --tune only", where=where, hint="add --tune, or name a .csv file")
    if path.resolve() == spec_path.resolve():
        raise UserError("is also the spec file, which would be lost", where=where)


def write_output(run: SpecRun, path: Path, *, tune: bool) -> bool:
    """Writes the format given by the file's ending; returns whether there was something to write."""
    if path.suffix in CSV:
        write_text_atomically(path, csv_table(run, tune=tune))
    elif run.ranked:
        write_text_atomically(path, best_spec(run, path.resolve().parent))
    else:
        return False
    return True

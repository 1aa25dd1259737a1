"""Prints the results of a spec in the format of Modular's tune.py."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rich.console import Console

from gemm_tuner.kernels.command_lines import idle
from gemm_tuner.kernels.metrics import ITERS, NAME
from gemm_tuner.kernels.program_spec import COMMAND, LAST, ProgramSpec
from gemm_tuner.pipeline.spec_rows import Row, SpecRun
from gemm_tuner.report import spec_files
from gemm_tuner.report.spec_files import MESH_IDX, further_names, shown_name
from gemm_tuner.system.terminal_table import Column, print_line, print_table

RULE_CHARS = 80
SHOWN_IDS = 8
LONG_NUMBER = re.compile(r"-?\d+\.\d{7,}")


def show_run(run: SpecRun, out: Console, *, tune: bool) -> None:
    """Prints the heading, the table, the failures, and with ``tune`` the best."""
    spec = run.spec
    _heading(out, f"{'Tuning' if tune else 'Running'} [{spec.name}] from [{_from(spec)}]")
    ranked = run.ranked
    print_line(out, f"Number of valid specs: {len(ranked)}")
    for name in idle(spec):
        print_line(out, f"{name} is in no command, build or env: write {{{name}}} where it goes")
    if ranked:
        _table(run, ranked if tune else sorted(ranked, key=lambda row: row.instance.mesh_idx), out)
    _failures(run, [row for row in run.rows if row.value is None], out)
    if tune and ranked:
        best = ranked[0]
        print_line(out, f"top_spec_idx: {best.instance.mesh_idx}")
        _finals(run, out)
        _heading(out, f"Best Measured {'Time' if spec.metric.is_time else 'Value'}:")
        out.print(spec_files.best_spec(run, spec.path.parent), markup=False, highlight=False, soft_wrap=True, end="")
    _heading(out, f"Elapsed {'tuning ' if tune else ''}time: {run.seconds:.1f} (s)", below=False)
    if run.reused:
        print_line(out, f"{run.reused} of these runs are of earlier starts; --fresh measures them again")


def show_builds(run: SpecRun, out: Console) -> int:
    """Prints what was built; returns the number of failed builds."""
    kept = [row for row in run.rows if row.instance.cut is None]
    failed = [row for row in kept if row.outcome is not None]
    print_line(out, f"built {len(kept) - len(failed)} of {len(kept)} specs of [{run.spec.name}] in {run.seconds:.1f} s")
    _failures(run, failed, out)
    return len(failed)


def _heading(out: Console, text: str, *, below: bool = True) -> None:
    line = "-" * min(RULE_CHARS, out.width)
    out.print(line, highlight=False)
    print_line(out, text)
    if below:
        out.print(line, highlight=False)


def _from(spec: ProgramSpec) -> str:
    return spec.path.name if spec.kind == COMMAND else spec.target


def _table(run: SpecRun, rows: Sequence[Row], out: Console) -> None:
    """Prints one line per row. If several rows have the same name, the varying parameters are additional columns, and a
    narrow terminal drops the name first."""
    metric, further = run.spec.metric, further_names(rows)
    told_apart = len({shown_name(row) for row in rows}) == len(rows)
    varied = [] if told_apart else [param.name for param in run.spec.params if len(param.values) > 1]
    columns = [
        Column(MESH_IDX, True),
        Column(NAME, rank=0 if told_apart else 3, wraps=True),
        Column(metric.title, True),
        Column(ITERS, True),
        *(Column(name, True, rank=2) for name in further),
        *(Column(name, True, rank=1) for name in varied),
    ]
    cells = []
    for row in rows:
        reading = row.outcome.reading if row.outcome else None
        assert reading is not None
        others = [_short(reading.further.get(name, "")) for name in further]
        values = [str(row.instance.values[name]) for name in varied]
        index = str(row.instance.mesh_idx)
        cells.append([index, shown_name(row), number(reading.value), reading.iters, *others, *values])
    left_out = print_table(out, "", columns, cells)
    if left_out:
        print_line(out, f"not shown for the width: {', '.join(left_out)}; --output table.csv has all", "dim")


def _short(text: str) -> str:
    """A number of a program's table, shortened to the digits of its time."""
    return number(float(text)) if LONG_NUMBER.fullmatch(text) else text


def number(value: float) -> str:
    """A number with six decimals as in Modular's table; more digits for small numbers, fewer for large ones."""
    if value and abs(value) < 0.01:
        return f"{value:.4g}"
    return f"{value:.6f}" if abs(value) < 1e6 else f"{value:.7g}"


def _failures(run: SpecRun, failed: Sequence[Row], out: Console) -> None:
    """Prints one line per reason (ignoring differences in numbers), with the combinations that failed for it."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in failed:
        reason = row.outcome.reason if row.outcome else ""
        groups.setdefault((row.status, re.sub(r"\d+", "#", reason)), []).append(row)
    everything = len(run.rows) > 1 and len(groups) == 1 and len(failed) == len(run.rows)
    for (status, _), rows in groups.items():
        first = rows[0].outcome.reason if rows[0].outcome else "the run was interrupted"
        differ = len({row.outcome.reason for row in rows if row.outcome}) > 1
        ids = ", ".join(str(row.instance.mesh_idx) for row in rows[:SHOWN_IDS])
        ids += ", ..." if len(rows) > SHOWN_IDS else ""
        count = (
            f"all {len(rows)} specs fail for one reason"
            if everything
            else f"{len(rows)} spec{'s' * (len(rows) > 1)} (mesh_idx {ids})"
        )
        print_line(out, f"{status}: {count}{', such as' if differ else ''}: {first}")


def _finals(run: SpecRun, out: Console) -> None:
    """Prints how the best was decided."""
    finalists = [row for row in run.ranked if row.is_finalist]
    if not finalists:
        return
    spreads = [(max(row.values) - min(row.values)) / abs(row.value) for row in finalists if row.value]
    spread = f", which spread by up to {100 * max(spreads):.1f} %" if spreads else ""
    last, several = run.spec.select == LAST, len(finalists) > 1
    what = "the last" if last else "medians" if several else "the median"
    count = f"the first {len(finalists)} rows are {what}" if several else f"the first row is {what}"
    print_line(out, f"finals: {count} of {run.rounds} more runs each{spread}")
    if run.ties:
        ids = ", ".join(str(row.instance.mesh_idx) for row in run.ties)
        print_line(out, f"tie: the runs of {ids} overlap with those of the best: as good within these runs")

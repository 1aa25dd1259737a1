"""Measures the configurations of several results files against each other, size by size, interleaved in one finals.

    rematch.py guided.yaml full.yaml [...]      what each of them costs beside the first, with 95 % intervals

All files' configurations of a size, and torch.mm, run in rounds on one GPU, so that drift is common to them. Ratios are
another file's time / the first file's: above 1, the first is faster.
"""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import suppress
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).resolve().parent.parent))

from gemm_tuner.cli import main as cli
from gemm_tuner.cli import options
from gemm_tuner.cli.size_flags import read_sizes
from gemm_tuner.core.errors import EXIT_OK, EnvironmentFault, UserError
from gemm_tuner.core.records import Config, Problem
from gemm_tuner.decide.estimates import Cells, Spread, interval_factor, percent
from gemm_tuner.decide.ranking import Judge, judge_of
from gemm_tuner.decide.sheet import finalists_of, sheet_of
from gemm_tuner.launch.plan import FINALS
from gemm_tuner.pipeline import prepare
from gemm_tuner.pipeline.open_run import opened
from gemm_tuner.pipeline.run_log import RunLog
from gemm_tuner.pipeline.tune import Tuning
from gemm_tuner.space.size_state import SizeState
from gemm_tuner.store import results


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path, help="results files, the first one to compare with")
    parser.add_argument("--iters", type=int, default=60, help="rounds (default: %(default)s)")
    parser.add_argument("--profiler", default="auto")
    parser.add_argument("--json", type=Path, help="write the table here too")
    arguments = parser.parse_args()
    try:
        configs = [
            {row.problem: row.config for row in results.read(path).rows if row.config} for path in arguments.files
        ]
        rows = rematch(arguments, configs)
    except UserError as error:
        print(error.one_line(), file=sys.stderr)
        return error.exit_status
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    report(rows, [path.stem for path in arguments.files])
    return EXIT_OK


def rematch(arguments: argparse.Namespace, configs: list[dict[Problem, Config]]) -> list[dict[str, Any]]:
    """One row a size that all files have."""
    words = ["--gemm_size_file", str(arguments.files[0]), "--benchmark", "--profiler", arguments.profiler]
    parsed = options.build_parser().parse([*words, "--iters", str(arguments.iters)])
    shown = cli.consoles()
    run_options = cli.run_options_from(parsed, read_sizes(parsed, shown.log))
    environment = prepare.find_environment(run_options)
    if not environment.gpus:
        raise EnvironmentFault("there is no GPU to measure on")
    states = []
    for problem, first in configs[0].items():
        state = prepare.given_state(problem, first, environment.device)
        for other in configs[1:]:
            with suppress(KeyError):
                state.add(other[problem], prepare.predicted_us(problem, other[problem], environment.device))
        states.append(state)
    log = RunLog(shown.log, shown.out, run_options.started)
    with opened(run_options, environment, log, resumes=False) as (launchers, session):
        Tuning(session, states, launchers).run_given()
        cells = {state.problem: sheet_of(session.store.timings(state.problem, FINALS)).all for state in states}
        judge = judge_of((sheet_of(session.store.timings(state.problem, FINALS)), state.kept) for state in states)
        session.folder.tidy(keep=False)
    return [row_of(state, cells[state.problem], judge, configs) for state in states]


def row_of(state: SizeState, cells: Cells, judge: Judge, configs: list[dict[Problem, Config]]) -> dict[str, Any]:
    """Each file's time and how much slower it is than the first's, percent with its interval; None if unknown."""
    names = [one[state.problem].name if state.problem in one else "" for one in configs]
    ran = finalists_of(cells, state.kept)
    medians = [ran.us(name) if name in ran.names else None for name in names]
    slower: list[list[float] | None] = []
    for name in names[1:]:
        if name not in ran.names or names[0] not in ran.names:
            slower.append(None)
        elif name == names[0]:
            slower.append([0.0, 0.0, 0.0])
        else:
            slower.append(list(interval_pct(judge, ran, name, names[0])))
    return {"size": state.problem.key, "names": names, "median_us": medians, "slower_pct": slower}


def interval_pct(judge: Judge, cells: Cells, name: str, base: str) -> tuple[float, float, float]:
    """(low, estimate, high): how much slower ``name`` is than ``base``, percent, with the 95 % interval over
    processes. Valid only where neither was selected by its time."""
    middle = cells.of([name, base])
    apart = middle.log_us[:, 0] - middle.log_us[:, 1]
    shared = apart[~np.isnan(apart)]
    spread = judge.spread(cells)
    if not len(shared) or not spread.degrees:
        return float("-inf"), percent(float(np.mean(shared))) if len(shared) else float("nan"), float("inf")
    width = np.log(interval_factor(Spread(2 * spread.variance, spread.degrees), len(shared)))
    return percent(np.mean(shared) - width), percent(np.mean(shared)), percent(np.mean(shared) + width)


def report(rows: list[dict[str, Any]], titles: list[str]) -> None:
    print(f"percent by which a file's configuration is slower than that of {titles[0]}, with a 95 % interval")
    print("| size | us | " + " | ".join(titles[1:]) + " |")
    print("|---|---|" + "---|" * len(titles[1:]))
    for row in rows:
        cells = ["-" if g is None else f"{g[1]:+.2f} ({g[0]:+.2f} to {g[2]:+.2f})" for g in row["slower_pct"]]
        first = "-" if row["median_us"][0] is None else f"{row['median_us'][0]:.2f}"
        print(f"| {row['size']} | {first} | " + " | ".join(cells) + " |")
    for index, title in enumerate(titles[1:]):
        gaps = [row["slower_pct"][index][1] for row in rows if row["slower_pct"][index] is not None]
        if gaps:
            print(
                f"{title}: mean {fmean(gaps):+.2f} %, mean distance {fmean(map(abs, gaps)):.2f} %, "
                f"from {min(gaps):+.2f} to {max(gaps):+.2f} %, {len(gaps)} sizes"
            )


if __name__ == "__main__":
    sys.exit(main())

"""Compares what two profilers measured of the same configurations, size by size.

    compare_profilers.py --a A1.yaml [A2.yaml ...] --b B1.yaml [B2.yaml ...]

Each file is the results file of one --benchmark run. Of several runs the median of the medians is compared, and the
spread of a profiler's own runs (largest less smallest) stands beside it: run the two in turns.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent))

from gemm_tuner.core.records import Problem
from gemm_tuner.store import results


def medians_us(paths: list[Path]) -> dict[Problem, list[float]]:
    """The medians of every run, by size."""
    found: dict[Problem, list[float]] = {}
    for path in paths:
        for row in results.read(path).rows:
            found.setdefault(row.problem, []).append(row.facts["median_us"])
    return found


def spread_pct(times_us: list[float]) -> float:
    return (max(times_us) / min(times_us) - 1) * 100


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--a", type=Path, nargs="+", required=True)
    parser.add_argument("--b", type=Path, nargs="+", required=True)
    parser.add_argument("--over_us", type=float, default=20.0, help="judge kernels that take longer than this, us")
    parser.add_argument("--limit_pct", type=float, default=3.0, help="exit 1 over this difference, per cent")
    arguments = parser.parse_args()
    names = [results.read(paths[0]).header["profiler"] for paths in (arguments.a, arguments.b)]
    a, b = medians_us(arguments.a), medians_us(arguments.b)
    worst = 0.0
    print(f"{'size':<26}{names[0]:>9} us{'spread':>9}{names[1]:>9} us{'spread':>9}{'difference':>12}")
    for problem in a:
        here, there = statistics.median(a[problem]), statistics.median(b[problem])
        difference_pct = (there / here - 1) * 100
        judged = max(here, there) > arguments.over_us
        worst = max(worst, abs(difference_pct)) if judged else worst
        spreads = [f"{spread_pct(times[problem]):.1f} %" for times in (a, b)]
        note = "" if judged else "  (short)"
        row = f"{problem.key:<26}{here:>12.2f}{spreads[0]:>9}{there:>12.2f}{spreads[1]:>9}{difference_pct:>+10.2f} %"
        print(row + note)
    print(f"largest difference of kernels over {arguments.over_us:g} us: {worst:.2f} %")
    return 1 if worst > arguments.limit_pct else 0


if __name__ == "__main__":
    sys.exit(main())

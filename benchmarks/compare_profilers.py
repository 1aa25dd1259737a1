"""Compares the medians of two results files, size by size: ``compare_profilers.py A.yaml B.yaml [--over_us 20]``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent))

from gemm_tuner import results


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("a", type=Path)
    parser.add_argument("b", type=Path)
    parser.add_argument("--over_us", type=float, default=20.0, help="judge kernels that take longer than this, us")
    parser.add_argument("--limit_pct", type=float, default=3.0, help="exit 1 over this difference, per cent")
    arguments = parser.parse_args()
    a, b = (results.read(path) for path in (arguments.a, arguments.b))
    other = {(row.problem, row.config): row.facts["median_us"] for row in b.rows}
    worst = 0.0
    print(f"{'size':<32}{a.header['profiler']:>12} us{b.header['profiler']:>12} us{'difference':>12}")
    for row in a.rows:
        here, there = row.facts["median_us"], other.get((row.problem, row.config))
        if there is None:
            print(f"{row.problem.key:<32}{here:>15.2f}{'not there':>15}")
            continue
        difference_pct = (there / here - 1) * 100
        judged = max(here, there) > arguments.over_us
        worst = max(worst, abs(difference_pct)) if judged else worst
        print(
            f"{row.problem.key:<32}{here:>15.2f}{there:>15.2f}{difference_pct:>+11.2f} %{'' if judged else '  (short)'}"
        )
    print(f"largest difference of kernels over {arguments.over_us:g} us: {worst:.2f} %")
    return 1 if worst > arguments.limit_pct else 0


if __name__ == "__main__":
    sys.exit(main())

"""How well the analytic model ranks: ``model_rank.py CONFIGS_DIR``, the configs folder of a measured run.

``--anew`` predicts by today's model, for the device of rules/space_sm_90.yaml, and not as the run did: for
benchmarks/landscapes.

Per size: configurations with a time, Spearman's rank correlation of predicted and measured time, and how much slower
than the best of all the best of the model's top 1, 16 and 48 is.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import search_replay


def regret_pct(ordered: pd.DataFrame, count: int) -> float:
    best = float(ordered["screen_us"].min())
    return (float(ordered["screen_us"].head(count).min()) / best - 1) * 100


def tables(folder: Path, anew: bool) -> Iterator[tuple[str, pd.DataFrame]]:
    """By size: predicted_us and screen_us."""
    if anew:
        for one in search_replay.load(folder, search_replay.h200()):
            yield one.problem.key, one.candidates.assign(screen_us=one.time_us)
    else:
        for path in sorted(folder.glob("*.csv.gz")):
            yield path.name.removesuffix(".csv.gz"), pd.read_csv(path, low_memory=False)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--anew", action="store_true", help="predict by today's model")
    args = parser.parse_args()
    print(f"{'size':<28}{'timed':>7}{'rank corr.':>12}{'top 1 %':>9}{'top 16 %':>10}{'top 48 %':>10}")
    rows = []
    for name, table in tables(args.folder, args.anew):
        timed = table[table["screen_us"].notna()]
        ordered = timed.sort_values("predicted_us")
        correlation = timed["predicted_us"].rank().corr(timed["screen_us"].rank())
        row = (len(timed), correlation, *(regret_pct(ordered, count) for count in (1, 16, 48)))
        rows.append(row)
        print(f"{name:<28}{row[0]:>7}{row[1]:>12.2f}{row[2]:>9.1f}{row[3]:>10.1f}{row[4]:>10.1f}")
    mean = pd.DataFrame(rows).mean()
    print(f"{'mean':<28}{'':>7}{mean[1]:>12.2f}{mean[2]:>9.1f}{mean[3]:>10.1f}{mean[4]:>10.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

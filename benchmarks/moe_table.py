"""Prints a table of a results file of ``tune_gemm.py moe``: the tuned time of each M, that of the server's default and
of the file that the server ships, all from the same finals; times of whole calls (call), alignment to sum; those of
this package's own kernel beside the server's; geometric means, and how long the run took.

    python benchmarks/moe_table.py moe.yaml --shipped "E=128,N=768,device_name=NVIDIA_H200.json"
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

sys.path.append(str(Path(__file__).resolve().parent.parent))

from gemm_tuner.moe import tuned_file
from gemm_tuner.moe.cute import FUSED_KEY
from gemm_tuner.moe.problem import MoeProblem
from gemm_tuner.pipeline.rivals import NAME, us_key
from gemm_tuner.report import moe_calls
from gemm_tuner.store import results, run_record
from gemm_tuner.store.results import Results, Row
from gemm_tuner.store.run_record import TABLES, tables_folder

HEAD = (
    "| M | default us | shipped us | tuned us | default / tuned | shipped / tuned | call default us | call shipped us "
    "| call tuned us | call default / tuned | call shipped / tuned | own us | tuned / own | call own us "
    "| call tuned / own | call fused us | call tuned / fused | verified | configuration |"
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("--shipped", type=Path, help="the server's own file, as it was given by --current")
    arguments = parser.parse_args()
    found = results.read(arguments.results)
    print(HEAD)
    print("|---" * HEAD.count(" | ") + "|---|")
    ratios: dict[str, list[float]] = {"default": [], "shipped": [], "call, default": [], "call, shipped": []}
    calls = moe_calls.read(arguments.results)
    for row in found.rows:
        if not isinstance(row.problem, MoeProblem) or row.config is None:
            continue
        us = row.facts.get("median_us")
        times = {"default": row.facts.get("vendor_us"), "shipped": shipped_us(found, row, arguments)}
        cells = cells_of(times, us, ratios, "")
        kept = calls.get(row.problem.key, {})
        call = kept["us"] if kept.get("configs", {}).get(moe_calls.TUNED) == row.config.name else {}
        whole = {"default": call.get(moe_calls.DEFAULT), "shipped": call.get(moe_calls.CURRENT)}
        cells += cells_of(whole, call.get(moe_calls.TUNED), ratios, "call, ")
        derived = row.facts.get("derived", {})
        ours = call.get(moe_calls.OURS) if kept.get("configs", {}).get(moe_calls.OURS) == derived.get(NAME) else None
        cells += beside(us, derived.get(us_key(NAME)), ratios, "tuned / own")
        cells += beside(call.get(moe_calls.TUNED), ours, ratios, "call, tuned / own")
        fused = (
            call.get(moe_calls.FUSED)
            if kept.get("configs", {}).get(moe_calls.FUSED) == derived.get(FUSED_KEY)
            else None
        )
        cells += beside(call.get(moe_calls.TUNED), fused, ratios, "call, tuned / fused")
        tile = "x".join(str(value) for value in list(row.config.options().values())[:3])
        rest = "/".join(str(value) for value in list(row.config.options().values())[3:])
        print(f"| {row.problem.M} | {' | '.join(cells)} | {row.verified.value} | {tile} {rest} |")
    for problem, reason in found.without_config:
        print(f"| {problem.shape} | none: {reason} |")
    for name, values in ratios.items():
        if values:
            said = name if "/" in name else f"{name} / tuned"
            print(f"\ngeometric mean, {said}: {mean(values):.3f} over {len(values)} M")
    folder = results.run_folder(arguments.results, found.header)
    if folder is not None and (folder / "run.json").exists():
        print(f"\nthe run took {run_record.read(folder).seconds:.0f} s")


def cells_of(times: dict[str, float | None], us: float | None, ratios: dict[str, list[float]], of: str) -> list[str]:
    """Times and ratios to ``us``, which are added to those of all M."""
    found = {name: other / us if us and other else None for name, other in times.items()}
    for name, ratio in found.items():
        ratios[of + name] += [] if ratio is None else [ratio]
    return [decimals(one, 2) for one in (*times.values(), us)] + [decimals(one, 3) for one in found.values()]


def beside(us: float | None, ours: float | None, ratios: dict[str, list[float]], name: str) -> list[str]:
    """The time of this package's own kernel, and how many times that the server's takes."""
    ratio = us / ours if us and ours else None
    ratios.setdefault(name, []).extend([] if ratio is None else [ratio])
    return [decimals(ours, 2), decimals(ratio, 3)]


def shipped_us(found: Results, row: Row, arguments: argparse.Namespace) -> float | None:
    """The time of the shipped file's entry in the finals of a row, microseconds; None where it was not in them."""
    if arguments.shipped is None or not isinstance(row.problem, MoeProblem):
        return None
    folder = tables_folder(arguments.results, found.header_of(row))
    path = folder / TABLES / f"{row.problem.key}.csv.gz"
    if not path.exists():
        return None
    table = pd.read_csv(path).set_index("name")["finals_us"]
    arch = str(found.header_of(row).get("arch", ""))
    us = float(table.get(tuned_file.config_at(arguments.shipped, row.problem, arch).name, math.nan))
    return None if math.isnan(us) else us


def mean(values: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


def decimals(value: float | None, places: int) -> str:
    return "" if value is None else f"{value:.{places}f}"


if __name__ == "__main__":
    main()

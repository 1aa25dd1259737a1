"""How much a search has compiled for sizes that are tuned together, without a GPU.

    compile_demand.py --sizes benchmarks/public_sizes.yaml
    random_sizes.py SEED COUNT > sizes.yaml; compile_demand.py --sizes sizes.yaml

The rounds of a search need times. Those of benchmarks/landscapes and landscapes_cute are taken where they are. All
others are the model's times a factor, whose logarithm is drawn from normal distributions: one part for a family's tile
and cluster in all sizes (standard deviation 0.10), one for each kernel of a size (0.08), about what the model misses in
the landscapes. So counts are near those of a run; regret is shown by search_replay.py alone.

Per round and language: configurations that are asked for; kernels among them that no size has asked for before; CPU
seconds that they take, by ``Workload.compile_work``; then other kernels that are offered to be compiled ahead
(``likely_next``, as often as pipeline/rounds.py has it), and how many of these the next round asks for.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import NormalDist
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import numpy as np
import pandas as pd
from search_replay import LANDSCAPES, after, h200, load

from gemm_tuner.core.records import Device
from gemm_tuner.core.workload import workload_of
from gemm_tuner.gemm.config import KernelConfig
from gemm_tuner.gemm.problem import GemmProblem
from gemm_tuner.pipeline.rounds import LIKELY_TIMES
from gemm_tuner.search import SizeView, make_search
from gemm_tuner.search.compile_work import work_of
from gemm_tuner.space import prune, space
from gemm_tuner.system.documents import load_yaml

OF_ALL_SIZES, OF_ONE = 0.10, 0.08
Kernel = tuple[str, int]  # language, number of Workload.compile_work


@dataclass
class Demand:
    """What a round has compiled: kernels by what tells them apart, and those compiled ahead of the next round."""

    configurations: Counter[str] = field(default_factory=Counter)
    new: dict[Kernel, float] = field(default_factory=dict)
    ahead: dict[Kernel, float] = field(default_factory=dict)


def drawn(text: str, deviation: float) -> float:
    """A number of a normal distribution that depends on the text alone."""
    digest = int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "big")
    return NormalDist(0, deviation).inv_cdf((digest + 0.5) / 2**56)


def times_of(problem: GemmProblem, table: pd.DataFrame, known: dict[str, pd.Series]) -> pd.Series:
    """Measured times where there are some, else the model's times a drawn factor; NaN for what failed."""
    workload = workload_of(problem.kind)
    made = []
    for config, predicted in zip(workload.configs_of(table), table["predicted_us"], strict=True):
        assert isinstance(config, KernelConfig)
        everywhere = (
            f"{config.family} {config.BLOCK_SIZE_M} {config.BLOCK_SIZE_N} {config.CLUSTER_M} {config.CLUSTER_N}"
        )
        factor = drawn(everywhere, OF_ALL_SIZES) + drawn(f"{problem.key} {config.kernel_symbol}", OF_ONE)
        made.append(predicted * math.exp(factor))
    times = pd.Series(made, index=table.index, dtype=np.float64)
    if problem.key in known:
        both = times.index.intersection(known[problem.key].index)
        times.loc[both] = known[problem.key].loc[both]
    return times


def views_of(problems: Sequence[GemmProblem], device: Device, families: Sequence[str]) -> list[SizeView]:
    loaded = space.load(ROOT / "rules" / "space_sm_90.yaml", "sm_90")
    configs = space.frame(loaded)
    if families:
        configs = configs[configs["family"].isin(families)].reset_index(drop=True)
    columns, rules = prune.columns_of(configs), prune.load_rules(ROOT / "rules")
    found = []
    for problem in problems:
        kept = configs.iloc[prune.apply(columns, problem, device, rules).kept].copy()
        workload = workload_of(problem.kind)
        predicted = workload.predict_us(prune.columns_of(kept), problem, device)
        kept.index = pd.Index(workload.names(kept), name="name")
        found.append(SizeView(problem, kept.assign(predicted_us=predicted), {}, frozenset()))
    return found


def kernels(view: SizeView, names: Sequence[str], device: Device) -> dict[Kernel, float]:
    """CPU seconds of the kernels of these configurations, in their order."""
    rows, workload = view.candidates.loc[list(names)], workload_of(view.problem.kind)
    numbers, seconds = work_of(replace(view, candidates=rows), device.target)
    languages = map(workload.language_for, rows["family"])
    return {(language, int(number)): float(s) for language, number, s in zip(languages, numbers, seconds, strict=True)}


def replayed(views: Sequence[SizeView], times: Sequence[pd.Series], device: Device, seed: int) -> list[Demand]:
    """The rounds of the guided search."""
    search, of = make_search("guided", seed=seed, jobs=2), {view.problem: view for view in views}
    given = {view.problem: series for view, series in zip(views, times, strict=True)}
    rounds: list[Demand] = []
    asked: dict[Kernel, float] = {}
    while wanted := search.propose(list(of.values()), device):
        rounds.append(demand := Demand())
        for problem, names in wanted.items():
            demand.configurations.update(of[problem].candidates.loc[names, "family"])
            demand.new |= {one: s for one, s in kernels(of[problem], names, device).items() if one not in asked}
        asked |= demand.new
        count = LIKELY_TIMES * max(map(len, wanted.values()))
        for problem, names in search.likely_next(list(of.values()), device, wanted, count).items():
            ahead = kernels(of[problem], names, device)
            demand.ahead |= {one: s for one, s in ahead.items() if one not in asked}
        for problem, names in wanted.items():
            of[problem] = after(of[problem], given[problem][names])
    return rounds


def table(rounds: Sequence[Demand]) -> str:
    heads = ("language", "configurations", "kernels", "CPU s", "ahead", "CPU s", "asked for next")
    lines = ["round " + "".join(f"{head:>16}" for head in heads)]
    total: dict[str, list[float]] = {}
    language_for = workload_of(GemmProblem.kind).language_for
    for number, (one, then) in enumerate(zip(rounds, [*rounds[1:], Demand()], strict=True), 1):
        for language in ("triton", "cute"):
            configurations = sum(of for name, of in one.configurations.items() if language_for(name) == language)
            new, ahead = (
                {kernel: s for kernel, s in some.items() if kernel[0] == language} for some in (one.new, one.ahead)
            )
            hits = len(then.new.keys() & ahead.keys())
            row = [configurations, len(new), sum(new.values()), len(ahead), sum(ahead.values()), hits]
            total[language] = [a + b for a, b in zip(total.get(language, [0.0] * len(row)), row, strict=True)]
            lines.append(line(str(number), language, row))
        lines.append("      " + ", ".join(f"{name} {count}" for name, count in sorted(one.configurations.items())))
    return "\n".join([*lines, *(line("all", language, row) for language, row in total.items())])


def line(number: str, language: str, row: Sequence[float]) -> str:
    return f"{number:>5} {language:>16}" + "".join(f"{value:>16.0f}" for value in row)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=Path, default=ROOT / "benchmarks" / "public_sizes.yaml")
    parser.add_argument("--families", default="", help="of these only, with commas")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    device = h200()
    rows: Any = load_yaml(arguments.sizes, "size file")
    problems = [GemmProblem(row["M"], row["N"], row["K"]) for row in rows]
    tables: dict[str, list[pd.Series]] = {}
    for folder in (LANDSCAPES, LANDSCAPES.with_name("landscapes_cute")):
        for one in load(folder, device):
            tables.setdefault(one.problem.key, []).append(one.time_us)
    known = {key: pd.concat(parts) for key, parts in tables.items()}
    views = views_of(problems, device, [name for name in arguments.families.split(",") if name])
    times = [times_of(problem, view.candidates, known) for problem, view in zip(problems, views, strict=True)]
    print(table(replayed(views, times, device, arguments.seed)))
    return 0


if __name__ == "__main__":
    sys.exit(main())

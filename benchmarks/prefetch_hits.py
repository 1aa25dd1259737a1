"""How many of the kernels that a round asks for were compiled ahead while the round before was timed, if the GPU leaves
time for so many times what that round had: `python benchmarks/prefetch_hits.py` on the recorded landscapes."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

from search_replay import LANDSCAPES, Landscape, after, h200, load, runs

from gemm_tuner.core.records import Device, Problem
from gemm_tuner.core.workload import workload_of
from gemm_tuner.search import SizeView, make_search

TIMES = (1, 2, 3, 4)


def kernels(view: SizeView, names: Sequence[str]) -> set[str]:
    """Of these configurations: several may share one."""
    configs = workload_of(view.problem.kind).configs_of(view.candidates.loc[list(names)])
    return {config.kernel_symbol for config in configs}


def count(landscapes: Sequence[Landscape], device: Device) -> tuple[Counter[int], int]:
    """(by multiple of a round, the kernels of later rounds that were offered before, all of later rounds)."""
    search = make_search("guided", jobs=2)
    views: dict[Problem, SizeView] = {
        one.problem: SizeView(one.problem, one.candidates, {}, frozenset()) for one in landscapes
    }
    offered: dict[int, dict[Problem, set[str]]] = {}
    hits, asked, known = Counter[int](), 0, {problem: set[str]() for problem in views}
    while wanted := search.propose(list(views.values()), device):
        for problem, names in wanted.items():
            new = kernels(views[problem], names) - known[problem]
            known[problem] |= new
            if offered:
                asked += len(new)
                for times in TIMES:
                    hits[times] += len(new & offered[times].get(problem, set()))
        most = max(map(len, wanted.values()))
        for times in TIMES:
            likely = search.likely_next(list(views.values()), device, wanted, times * most)
            offered[times] = {problem: kernels(views[problem], names) for problem, names in likely.items()}
        for one in landscapes:
            views[one.problem] = after(views[one.problem], one.time_us[wanted.get(one.problem, [])])
    return hits, asked


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--landscapes", type=Path, default=LANDSCAPES)
    arguments = parser.parse_args()
    device = h200()
    hits, asked = Counter[int](), 0
    for sizes in runs(load(arguments.landscapes, device), alone=False):
        of_run, of = count(sizes, device)
        hits, asked = hits + of_run, asked + of
    for times in TIMES:
        print(f"{times} times a round offered: {100 * hits[times] / asked:.0f} % of {asked} kernels of later rounds")
    return 0


if __name__ == "__main__":
    sys.exit(main())

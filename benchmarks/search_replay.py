"""Plays a search back over landscapes, tables in which every configuration has its measured time; no GPU is needed.

Regret of a size: how much slower than the fastest configuration of its table the fastest is that the search asked for,
both by their screening times. A run's finals would have the eight fastest asked for; the fastest by screening stands
for their winner. Predictions are those of today's model for the device of rules/space_sm_90.yaml. landscapes_cute is of
gemm_cute alone (2026-11-24, `--families gemm_cute --search full`, an H200, c63b710).

Sizes are searched as in a run: all of one layout together (``--alone``: each by itself, as by a user with one size).

    python benchmarks/search_replay.py --search guided --seeds 3
    python benchmarks/search_replay.py --search random --budget 0.08 --alone
    python benchmarks/search_replay.py --landscapes benchmarks/landscapes_cute --seeds 2
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from gemm_tuner.core.records import Device
from gemm_tuner.gemm import model
from gemm_tuner.gemm.config import CONFIG_FIELDS, KernelConfig
from gemm_tuner.gemm.problem import GemmProblem, Layout, as_gemm
from gemm_tuner.search import SEARCHES, Proposals, Requested, Search, SizeView, make_search
from gemm_tuner.space import space

LANDSCAPES = ROOT / "benchmarks" / "landscapes"
ARCH = "sm_90"
# Of fields that came after the landscapes were recorded: their configurations have the default.
NEWER: dict[str, Any] = {field.name: field.default for field in fields(KernelConfig)}
KEY = re.compile(r"(\d+)x(\d+)x(\d+)_([a-z0-9]+)_([nt])([nt])")


@dataclass(frozen=True)
class Landscape:
    """candidates: what a search sees of them; time_us: by name, NaN where there is none."""

    problem: GemmProblem
    candidates: pd.DataFrame
    time_us: pd.Series


@dataclass(frozen=True)
class Outcome:
    """One size of one replay. asked: configurations that were timed or failed; of: all of the table."""

    size: str
    seed: int
    regret_pct: float
    asked: int
    of: int
    rounds: int


@dataclass(frozen=True)
class Random:
    """A share of every size's configurations, in one round, drawn at random: what a search must beat."""

    share: float
    seed: int

    def propose(self, sizes: Sequence[SizeView], device: Device) -> Proposals:
        return {size.problem: self._draw(size) for size in sizes if not (size.timed_us or size.failed)}

    def likely_next(self, sizes: Sequence[SizeView], device: Device, requested: Requested, count: int) -> Proposals:
        return {}

    def _draw(self, size: SizeView) -> list[str]:
        problem = as_gemm(size.problem)
        names = np.random.default_rng([self.seed, problem.m, problem.k]).permutation(size.candidates.index)
        return [str(name) for name in names[: allowed(len(names), self.share)]]


def allowed(count: int, share: float) -> int:
    """How many of ``count`` configurations a share is, at least one."""
    return max(1, int(share * count))


def h200() -> Device:
    """The device that the landscapes were measured on, by its data sheet."""
    return space.load(ROOT / "rules" / f"space_{ARCH}.yaml", ARCH).device


def load(folder: Path, device: Device) -> list[Landscape]:
    """The landscapes of a folder. Raises ValueError for a table whose name is not that of a plain problem."""
    found = []
    for path in sorted(folder.glob("*.csv.gz")):
        key = path.name.removesuffix(".csv.gz")
        parts = KEY.fullmatch(key)
        if parts is None:
            raise ValueError(f"{path}: the name is not like 512x512x512_bf16_nn.csv.gz")
        layout_a, layout_b = (Layout.ROW if letter == "n" else Layout.COL for letter in parts.group(5, 6))
        m, n, k = map(int, parts.group(1, 2, 3))
        problem = GemmProblem(m, n, k, parts[4], parts[4], parts[4], layout_a, layout_b)
        table = pd.read_csv(path).set_index("name")
        table = table.assign(**{name: NEWER[name] for name in CONFIG_FIELDS if name not in table})
        candidates = table[list(CONFIG_FIELDS)]
        predicted = model.predict_us(candidates, problem, device)
        found.append(Landscape(problem, candidates.assign(predicted_us=predicted), table["screen_us"]))
    return found


def together(folders: Sequence[Path], device: Device) -> list[Landscape]:
    """The sizes that are in all folders, each with the configurations of all. Raises ValueError as ``load``."""
    found = [{one.problem: one for one in load(folder, device)} for folder in folders]
    joined = []
    for problem in found[0]:
        if all(problem in of_folder for of_folder in found):
            parts = [of_folder[problem] for of_folder in found]
            candidates = pd.concat([part.candidates for part in parts])
            joined.append(Landscape(problem, candidates, pd.concat([part.time_us for part in parts])))
    return joined


def replay(
    search: Search, landscapes: Sequence[Landscape], device: Device, *, seed: int, budget: float
) -> list[Outcome]:
    """One run over some sizes together; of each size at most the share ``budget`` is asked."""
    views = [SizeView(one.problem, one.candidates, {}, frozenset()) for one in landscapes]
    rounds = [0] * len(views)
    while True:
        wanted = search.propose(views, device)
        went_on = False
        for index, (one, view) in enumerate(zip(landscapes, views, strict=True)):
            left = allowed(len(one.candidates), budget) - len(view.timed_us) - len(view.failed)
            names = wanted.get(one.problem, [])[:left]
            if names:
                went_on, rounds[index] = True, rounds[index] + 1
                views[index] = after(view, one.time_us[names])
        if not went_on:
            return [outcome(*row, seed) for row in zip(landscapes, views, rounds, strict=True)]


def after(view: SizeView, times: pd.Series) -> SizeView:
    """What is known once these have been timed."""
    timed = {str(name): float(us) for name, us in times.items() if us == us}
    failed = view.failed | {str(name) for name, us in times.items() if us != us}
    return SizeView(view.problem, view.candidates, {**view.timed_us, **timed}, failed)


def outcome(one: Landscape, view: SizeView, rounds: int, seed: int) -> Outcome:
    asked = len(view.timed_us) + len(view.failed)
    regret_pct = (min(view.timed_us.values(), default=np.inf) / float(one.time_us.min()) - 1) * 100
    return Outcome(one.problem.key, seed, regret_pct, asked, len(one.candidates), rounds)


def runs(landscapes: Sequence[Landscape], alone: bool) -> list[list[Landscape]]:
    """The sizes of each run: those of one problem class, or one."""
    if alone:
        return [[one] for one in landscapes]
    classes = sorted({one.problem.signature for one in landscapes})
    return [[one for one in landscapes if one.problem.signature == name] for name in classes]


def summary(replays: Sequence[Outcome]) -> dict[str, float]:
    """Over all sizes and seeds; timed_share_pct: all that was asked of all that there is."""
    regrets = [one.regret_pct for one in replays]
    shares = [one.asked / one.of for one in replays]
    return {
        "regret_mean_pct": float(np.mean(regrets)),
        "regret_worst_pct": float(np.max(regrets)),
        "timed_share_pct": 100 * sum(one.asked for one in replays) / sum(one.of for one in replays),
        "timed_share_mean_pct": 100 * float(np.mean(shares)),
        "asked_mean": float(np.mean([one.asked for one in replays])),
        "rounds": float(max(one.rounds for one in replays)),
    }


def shaken(landscapes: Sequence[Landscape], pct: float, seed: int) -> list[Landscape]:
    """The landscapes with predictions that are changed at random, by a standard deviation of ``pct`` percent."""
    draw = np.random.default_rng(seed)
    return [
        replace(
            one,
            candidates=one.candidates.assign(
                predicted_us=one.candidates["predicted_us"] * np.exp(draw.normal(0, pct / 100, len(one.candidates)))
            ),
        )
        for one in landscapes
    ]


def searched(name: str, landscapes: Sequence[Landscape], device: Device, args: argparse.Namespace) -> list[Outcome]:
    replays: list[Outcome] = []
    for seed in range(args.seeds):
        search = Random(args.budget, seed) if name == "random" else make_search(name, seed=seed, jobs=args.jobs)
        for sizes in runs(shaken(landscapes, args.shake_pct, seed) if args.shake_pct else landscapes, args.alone):
            replays += replay(search, sizes, device, seed=seed, budget=args.budget)
    return replays


def table(replays: Sequence[Outcome]) -> str:
    """One line a size, means over the seeds; then all of them."""
    lines = [f"{'size':<28}{'regret %':>10}{'worst %':>10}{'timed':>8}{'of':>7}{'share %':>9}{'rounds':>8}"]
    for size in dict.fromkeys(one.size for one in replays):
        some = [one for one in replays if one.size == size]
        of_size = summary(some)
        lines.append(
            f"{size:<28}{of_size['regret_mean_pct']:>10.2f}{of_size['regret_worst_pct']:>10.2f}{of_size['asked_mean']:>8.0f}"
            f"{some[0].of:>7}{of_size['timed_share_pct']:>9.1f}{of_size['rounds']:>8.0f}"
        )
    total = summary(replays)
    lines.append(
        f"{'mean regret, worst regret':<28}{total['regret_mean_pct']:>10.2f}{total['regret_worst_pct']:>10.2f}"
        f"{total['asked_mean']:>8.0f}{'':>7}{total['timed_share_pct']:>9.1f}{total['rounds']:>8.0f}"
    )
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--search", choices=(*SEARCHES, "random"), default="guided")
    parser.add_argument("--budget", type=float, default=None, help="largest share of a size's configurations asked")
    parser.add_argument("--alone", action="store_true", help="each size by itself")
    parser.add_argument("--seeds", type=int, default=1, help="repeat with the seeds 0 to this less one")
    parser.add_argument(
        "--shake_pct",
        type=float,
        default=0.0,
        help="change predictions at random by about so much, anew for each seed: what a search finds by luck evens out",
    )
    parser.add_argument("--jobs", type=int, default=2, help="threads of the learned model")
    parser.add_argument(
        "--landscapes",
        type=Path,
        nargs="+",
        default=[LANDSCAPES],
        help="folders of the tables; of several, the sizes that all have, each with the rows of all",
    )
    parser.add_argument("--json", action="store_true", help="one JSON document")
    args = parser.parse_args()
    if args.budget is None:
        args.budget = 0.08 if args.search == "random" else 1.0
    device = h200()
    replays = searched(args.search, together(args.landscapes, device), device, args)
    if args.json:
        print(json.dumps({"summary": summary(replays), "sizes": [asdict(one) for one in replays]}, indent=1))
    else:
        print(table(replays))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""From a run to the few configs, what each serves, and a results file of the served sizes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from gemm_tuner.core.choice import Choice
from gemm_tuner.core.records import Verified
from gemm_tuner.export.compact import cover
from gemm_tuner.export.compact.ranges import Group, group_sizes, ranges_of
from gemm_tuner.export.compact.tuned import TunedRun, TunedSize
from gemm_tuner.gemm.size_rows import TIMED_FACTS
from gemm_tuner.store.results import FORMAT_VERSION, choice_row, run_reference, size_keys
from gemm_tuner.store.run_timings import SCREEN
from gemm_tuner.system.documents import dump_yaml


@dataclass(frozen=True, slots=True)
class Serving:
    """A size and the config that serves it. loss: share by which it is slower than the size's own config."""

    size: TunedSize
    name: str

    @property
    def loss(self) -> float:
        return self.size.loss(self.name)


@dataclass(frozen=True, slots=True)
class Compacted:
    """names: configs, those for most sizes first. servings: in the order of the run. method: of the cover."""

    names: tuple[str, ...]
    method: str
    servings: tuple[Serving, ...]
    groups: tuple[Group, ...]
    configs_before: int

    def served_by(self, name: str) -> list[Serving]:
        return [serving for serving in self.servings if serving.name == name]


def compact(run: TunedRun, loss: float, boundaries: str) -> Compacted:
    """The fewest configs for all sizes. loss: share by which a size may be slower than with its own, 0.02 for 2 %."""
    sets, cost = serving_sets(run.sizes, loss)
    found = cover.smallest(sets, cost)
    groups = [ranges_of(group, found.names, loss, boundaries) for group in group_sizes(run.sizes)]
    by_problem = {size.problem: one.name for group in groups for one in group.ranges for size in one.sizes}
    servings = tuple(Serving(size, by_problem[size.problem]) for size in run.sizes)
    counts = {name: sum(serving.name == name for serving in servings) for name in found.names}
    names = tuple(name for name in sorted(found.names, key=lambda name: -counts[name]) if counts[name])
    return Compacted(names, found.method, servings, tuple(groups), len({size.chosen for size in run.sizes}))


def serving_sets(sizes: tuple[TunedSize, ...], loss: float) -> tuple[dict[str, frozenset[int]], dict[str, float]]:
    """(by config, the indices of the sizes that it serves within the loss; by config, its mean loss there).

    A config can serve a size only where it was timed for that size.
    """
    places: dict[str, list[int]] = {}
    for place, size in enumerate(sizes):
        for name in size.timed:
            if size.is_served_by(name, loss):
                places.setdefault(name, []).append(place)
    cost = {name: sum(sizes[i].loss(name) for i in where) / len(where) for name, where in places.items()}
    return {name: frozenset(where) for name, where in places.items()}, cost


def results_text(compacted: Compacted, run: TunedRun, loss: float, path: Path) -> str:
    """The text of a results file of the served sizes, for ``path``. Losses are in comments: rows have no key for
    them."""
    date = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    header = {**run.header, "date": date, "run": run_reference(path, run.folder)}
    parts = [
        "# Written by tune_gemm.py compact; docs/compare.md explains it, docs/results_format.md the fields.\n",
        f"# {len(compacted.names)} configs within {loss * 100:g} %, where there were {compacted.configs_before}.\n",
        dump_yaml({"format_version": FORMAT_VERSION, "header": header}),
        "configs:\n",
    ]
    source = str(run.header.get("source") or "measured")
    for serving in compacted.servings:
        stage = serving.size.timed[serving.name].stage
        parts.append(f"# loss {serving.loss * 100:.2f} % against {serving.size.chosen}, by the {stage}\n")
        parts.append(dump_yaml([_row(serving, source)]))
    failures = [{**size_keys(problem), "reason": reason} for problem, reason in run.failures]
    return "".join(parts) + dump_yaml({"without_config": failures})


def _row(serving: Serving, source: str) -> dict[str, Any]:
    """The row of a size. A config other than the size's own was not checked: not verified. A config that was only
    screened has no time in the row, since screening times do not compare with those of finals."""
    size, timed = serving.size, serving.size.timed[serving.name]
    unknown = math.nan
    choice = Choice(
        problem=size.problem,
        config=timed.config,
        source=source,
        verified=size.verified if serving.name == size.chosen else Verified.FALSE,
        median_us=timed.time_us,
        p20_us=None,
        p80_us=None,
        num_samples=timed.samples,
        vendor_us=None,
        max_abs_error=unknown,
        error_over_bound=unknown,
        runner_up="",
        gap_pct=None,
        tie=False,
        roofline_pct=unknown if size.roofline_us is None else size.roofline_us / timed.time_us * 100,
        served=size.served,
    )
    row = choice_row(choice)
    unfit = TIMED_FACTS if timed.stage == SCREEN else ("tie",) if timed.samples else ("tie", "samples")
    return {key: value for key, value in row.items() if key not in unfit}

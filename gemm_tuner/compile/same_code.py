"""Finds configurations of a size with equal machine code and equal launch, so that only one of them is timed."""

from __future__ import annotations

from collections.abc import Collection

from gemm_tuner.core.workload import workload_of
from gemm_tuner.space.size_state import SizeState

Launch = tuple[str | int, ...]


def duplicates(state: SizeState, num_sms: int, timed: Collection[str] = ()) -> dict[str, str]:
    """Maps each redundant configuration to the equal one that is timed in its place (which is not a key itself).

    Configurations are equal if both code (CompileResult.binary_hash) and launch are. The representative is one that
    already has a status or is among ``timed``, else the simplest: fewest stages, then fewest warps, then by name.
    """
    groups: dict[tuple[str, Launch], list[str]] = {}
    for name, row in state.rows.items():
        if row.get("binary_hash"):
            key = (
                row["binary_hash"],
                workload_of(state.problem.kind).same_launch(state.problem, state.kept[name], num_sms),
            )
            groups.setdefault(key, []).append(name)

    def rank(name: str) -> tuple[bool, int, int, str]:
        options = state.kept[name].to_dict()
        is_new = "status" not in state.rows[name] and name not in timed
        return is_new, options.get("num_stages", 0), options.get("num_warps", 0), name

    found = {}
    for names in groups.values():
        if len(names) == 1:
            continue
        first = min(names, key=rank)
        found.update({name: first for name in names if name != first})
    return found

"""Rivals: configurations of kernels that cannot win a size, such as this package's own kernel beside a server's.

They are searched separately and stand in the same finals; the row names the fastest right one with its time, beside
the configuration that it is for. Each sort of rivals (``Workload.rival_key``) has a search, finalists and a name in the
row of its own, since their times may be of different work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from gemm_tuner.core.choice import Choice
from gemm_tuner.core.records import Problem, Verdict
from gemm_tuner.core.workload import workload_of
from gemm_tuner.pipeline.serving import is_right
from gemm_tuner.space.size_state import Named, SizeState

FINALISTS = 4  # number per size and sort
# Of a row's derived values: the key of a rival that does the same work as the winner.
NAME = "own_kernel"

Verdicts = Callable[[Problem, str], Sequence[Verdict]]


def us_key(key: str) -> str:
    """Of a row's derived values: the time of the rival that ``key`` names."""
    return f"{key}_us"


def of_size(state: SizeState) -> dict[str, frozenset[str]]:
    """The names of a size's rivals by their key; a server's own kernel under --serve is none."""
    own, found = state.own, dict[str, set[str]]()
    workload = workload_of(state.problem.kind)
    for name, one in state.kept.items():
        if name not in own and not one.is_of_a_server:
            found.setdefault(workload.rival_key(state.problem, one), set()).add(name)
    return {key: frozenset(names) for key, names in found.items()}


def keys(states: Iterable[SizeState]) -> list[str]:
    return list(dict.fromkeys(key for state in states for key in of_size(state)))


def added(state: SizeState, finalists: Sequence[str]) -> list[str]:
    """The finalists of a size, and the fastest rivals of screening."""
    fastest = (state.fastest(FINALISTS, names) for names in of_size(state).values())
    return list(dict.fromkeys([*finalists, *(name for names in fastest for name in names)]))


def candidates(state: SizeState, us: Mapping[str, float], key: str) -> list[str]:
    """The rivals of a sort that the finals timed, fastest first. us: times by name."""
    found = [name for name in of_size(state).get(key, ()) if name in us and state.may_run(name)]
    return sorted(found, key=lambda name: (us[name], name))


def to_check(order: Named, us: Iterable[Mapping[str, float]], verdicts: Verdicts, key: str) -> Named:
    """The sizes whose fastest rival of a sort is not checked yet, with the rivals, fastest first."""
    wanted = [(state, candidates(state, times, key)) for (state, _), times in zip(order, us, strict=True)]
    return [(state, names) for state, names in wanted if names and not is_right(verdicts(state.problem, names[0]))]


def noted(state: SizeState, us: Mapping[str, float], verdicts: Verdicts) -> dict[str, Any]:
    """What a row says of the fastest right rival of each sort: its name, and its time in finals, microseconds."""
    found: dict[str, Any] = {}
    for key in of_size(state):
        right = (name for name in candidates(state, us, key) if is_right(verdicts(state.problem, name)))
        name = next(right, None)
        found |= {} if name is None else {key: name, us_key(key): round(us[name], 3)}
    return found


def compared(choice: Choice) -> str:
    """A line about the rival of a choice that does the same work; "" without one."""
    us = dict(choice.derived).get(us_key(NAME))
    if us is None:
        return ""
    return (
        f"this package's own kernel takes {us:.2f} us; the server's takes {choice.median_us / float(us):.3f} times that"
    )

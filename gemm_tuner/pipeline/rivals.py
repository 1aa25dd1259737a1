"""Rivals: configurations of kernels that cannot win a size, such as this package's own kernel beside a server's.

They are searched separately and stand in the same finals; the row names the fastest right one with its time, beside
the configuration that it is for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from gemm_tuner.core.choice import Choice
from gemm_tuner.core.records import Problem, Verdict
from gemm_tuner.pipeline.serving import is_right
from gemm_tuner.space.size_state import Named, SizeState

FINALISTS = 4  # number per size
NAME, TIME_US = "own_kernel", "own_kernel_us"  # keys of a row's derived values

Verdicts = Callable[[Problem, str], Sequence[Verdict]]


def of_size(state: SizeState) -> frozenset[str]:
    """The names of a size's rivals; a server's own kernel under --serve is none."""
    own = state.own
    return frozenset(name for name, one in state.kept.items() if name not in own and not one.is_of_a_server)


def added(state: SizeState, finalists: Sequence[str]) -> list[str]:
    """The finalists of a size, and the fastest rivals of screening."""
    return list(dict.fromkeys([*finalists, *state.fastest(FINALISTS, of_size(state))]))


def candidates(state: SizeState, us: Mapping[str, float]) -> list[str]:
    """The rivals that the finals timed, fastest first. us: times by name."""
    found = [name for name in of_size(state) if name in us and state.may_run(name)]
    return sorted(found, key=lambda name: (us[name], name))


def to_check(order: Named, us: Iterable[Mapping[str, float]], verdicts: Verdicts) -> Named:
    """The sizes whose fastest rival is not checked yet, with the rivals, fastest first."""
    wanted = [(state, candidates(state, times)) for (state, _), times in zip(order, us, strict=True)]
    return [(state, names) for state, names in wanted if names and not is_right(verdicts(state.problem, names[0]))]


def noted(state: SizeState, us: Mapping[str, float], verdicts: Verdicts) -> dict[str, Any]:
    """What a row says of the fastest right rival: its name, and its time in finals, microseconds."""
    right = (name for name in candidates(state, us) if is_right(verdicts(state.problem, name)))
    name = next(right, None)
    return {} if name is None else {NAME: name, TIME_US: round(us[name], 3)}


def compared(choice: Choice) -> str:
    """A line about the rival of a choice; "" without one."""
    us = dict(choice.derived).get(TIME_US)
    if us is None:
        return ""
    return (
        f"this package's own kernel takes {us:.2f} us; the server's takes {choice.median_us / float(us):.3f} times that"
    )
